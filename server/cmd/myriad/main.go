// Command myriad pushes events to browsers and devices.
//
//	myriad serve [--listen 127.0.0.1:8000] [--config myriad.toml] [--check]
//	myriad cluster dev [--nodes 3]
//	myriad cluster remove NODE
//	myriad load http|ws|push|redis URL [--connections 1000] [--rate 5000]
//	myriad token make --user ann; myriad token check TOKEN; myriad token explain TOKEN
//	myriad health [URL]
//	myriad completion bash|zsh|fish
//	myriad version
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	// urfave/cli v3 is maintained, reads flags from the environment, and has no dependencies.
	"github.com/urfave/cli/v3"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, os.Args, os.Stdout, os.Stderr); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			// prefixes of the packages' errors
			line = strings.TrimPrefix(strings.TrimPrefix(line, "myriad: "), "push: ")
			fmt.Fprintln(os.Stderr, "myriad:", line)
		}
		os.Exit(1)
	}
}

// run runs the command until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := &cli.Command{
		Name:      "myriad",
		Usage:     "push events to browsers and devices",
		Writer:    stdout,
		ErrWriter: stderr,
		Commands: []*cli.Command{serveCommand(stdout, stderr), clusterCommand(stdout, stderr),
			loadCommand(stdout, stderr), tokenCommand(stdout, stderr), healthCommand(stdout),
			versionCommand(stdout), completionCommand(stdout)},
		Flags: []cli.Flag{&cli.BoolFlag{Name: "version", Usage: "print the version", Local: true}},
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Bool("version") {
				return printVersion(stdout)
			}
			return unknownCommand(c)
		},
		ExitErrHandler: func(context.Context, *cli.Command, error) {}, // main reports errors
	}
	for _, c := range append(root.Commands, root) {
		c.OnUsageError = func(_ context.Context, c *cli.Command, err error,
			_ bool) error {
			return explainUsage(c, err)
		}
	}
	err := root.Run(ctx, args)
	if err != nil {
		// the library does not call OnUsageError for this error
		if found := badSwitch.FindStringSubmatch(err.Error()); found != nil {
			return fmt.Errorf("%s is %q: write true or false", found[2], found[1])
		}
	}
	return err
}

// unknownCommand runs if the command is missing or unknown.
func unknownCommand(c *cli.Command) error {
	if !c.Args().Present() {
		return cli.ShowRootCommandHelp(c)
	}
	var names []string
	for _, sub := range c.Commands {
		names = append(names, sub.Name)
	}
	name := c.Args().First()
	if near := didYouMean(name, names); near != "" {
		return fmt.Errorf("there is no command %q%s", name, near)
	}
	return fmt.Errorf("there is no command %q: see myriad --help", name)
}

// These match errors of the library that explainUsage rewrites.
var (
	noFlag    = regexp.MustCompile(`^flag provided but not defined: -(.*)$`)
	badValue  = regexp.MustCompile(`^invalid value "(.*)" for flag -(.*?): `)
	badSwitch = regexp.MustCompile(`^could not parse "(.*)" as bool value from environment variable "(.*?)" for flag `)
)

// explainUsage explains a mistake in the command line in one line, instead of a page of help.
func explainUsage(c *cli.Command, err error) error {
	if found := noFlag.FindStringSubmatch(err.Error()); found != nil {
		var names []string
		for _, f := range c.Flags {
			names = append(names, f.Names()[0])
		}
		name := strings.TrimLeft(found[1], "-")
		if owner := commandWith(c, name); owner != nil {
			return fmt.Errorf("--%s is a flag of a command: write %s --%s", name, owner.FullName(), name)
		}
		if near := nearest(name, names); near != "" {
			return fmt.Errorf("there is no flag --%s: did you mean --%s?", name, near)
		}
		return fmt.Errorf("there is no flag --%s: see %s --help", name, c.FullName())
	}
	if found := badValue.FindStringSubmatch(err.Error()); found != nil {
		// the library parses only the values of switches
		return fmt.Errorf("--%s is %q: write true or false", found[2], found[1])
	}
	return fmt.Errorf("%w; see %s --help", err, c.FullName())
}

// commandWith returns the command below c that has the flag, or nil.
func commandWith(c *cli.Command, flag string) *cli.Command {
	for _, sub := range c.Commands {
		for _, f := range sub.Flags {
			if slices.Contains(f.Names(), flag) {
				return sub
			}
		}
	}
	return nil
}

func versionCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version and what it was built with",
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Args().Present() {
				return fmt.Errorf("version takes no arguments, but got %q", c.Args().First())
			}
			return printVersion(stdout)
		},
	}
}

func printVersion(stdout io.Writer) error {
	_, err := fmt.Fprintf(stdout, "myriad %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// version returns the module's version, or (devel) for a build from a checkout.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
