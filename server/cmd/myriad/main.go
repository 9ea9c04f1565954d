// Command myriad pushes events to browsers and devices.
//
//	myriad serve [--listen 127.0.0.1:8000]
//	myriad version
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	// urfave/cli v3: maintained, reads flags from the environment by itself, and depends on nothing.
	"github.com/urfave/cli/v3"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, os.Args, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "myriad:", err)
		os.Exit(1)
	}
}

// run is the command, until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := &cli.Command{
		Name:           "myriad",
		Usage:          "push events to browsers and devices",
		Writer:         stdout,
		ErrWriter:      stderr,
		Commands:       []*cli.Command{serveCommand(stderr), versionCommand(stdout)},
		ExitErrHandler: func(context.Context, *cli.Command, error) {}, // main reports it
	}
	return root.Run(ctx, args)
}

func versionCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version and what it was built with",
		Action: func(context.Context, *cli.Command) error {
			_, err := fmt.Fprintf(stdout, "myriad %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// version is that of the module, or (devel) for a build from a checkout.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
