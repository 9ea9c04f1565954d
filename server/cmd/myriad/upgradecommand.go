package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/myriad-go/myriad/handover"
)

func upgradeCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "upgrade",
		Usage: "have the running server start its program anew, and hand its clients over to it",
		Description: "Put the new binary in the place of the old one first. With --handover the command prints what " +
			"has moved, or why the\nserver has refused. With --pid it sends SIGUSR2, and waits until the old process " +
			"has ended: the log of the server says more.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "handover", Usage: "`PATH` of the server's --handover",
				Sources: cli.EnvVars("MYRIAD_HANDOVER")},
			&cli.IntFlag{Name: "pid", Usage: "`PID` of a server without --handover"},
			&cli.StringFlag{Name: "pid-file", Usage: "`FILE` with its pid", TakesFile: true},
			&cli.StringFlag{Name: "timeout", Value: "2m", Usage: "`TIME` to wait for the outcome"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Present() {
				return fmt.Errorf("upgrade takes no arguments, but got %q", c.Args().First())
			}
			timeout, err := parseTime(c.String("timeout"))
			if err != nil {
				return fmt.Errorf("--timeout is %q: %w", c.String("timeout"), err)
			}
			pid, err := pidOf(c.Int("pid"), c.String("pid-file"))
			if err != nil {
				return err
			}
			// A flag that names a process counts more than a path in the environment.
			path := c.String("handover")
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			switch {
			case pid != 0:
				return upgradeProcess(ctx, pid, stdout)
			case path != "":
				return upgradeByPath(ctx, path, stdout)
			}
			return errors.New("name the server: --handover PATH, as it was started with, or --pid PID")
		},
	}
}

// pidOf returns the pid that is given as a number or in a file; 0: none is.
func pidOf(pid int, file string) (int, error) {
	if file == "" {
		if pid < 0 {
			return 0, fmt.Errorf("--pid %d: it must be positive", pid)
		}
		return pid, nil
	}
	if pid != 0 {
		return 0, errors.New("--pid and --pid-file name the same: omit one")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("--pid-file: %w", err)
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil || pid <= 0 {
		return 0, fmt.Errorf("--pid-file %s: it has %.100q, and no pid", file, text)
	}
	return pid, nil
}

// upgradeByPath asks the server that listens there for an upgrade, and prints the outcome.
func upgradeByPath(ctx context.Context, path string, stdout io.Writer) error {
	err := checkSocket(path)
	var nc *net.UnixConn
	if err == nil {
		nc, err = handover.Dial(path)
	}
	switch {
	case isNobody(err):
		return fmt.Errorf("--handover %q: no server listens on it: start one with this option", path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("--handover %q: %w: only root and the user of the server may ask for an upgrade", path,
			cause(err))
	case err != nil:
		return fmt.Errorf("--handover %q: %w", path, cause(err))
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Now()) })()
	a, file, err := ask(nc, upgradeRequest)
	if file != nil {
		_ = file.Close()
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("--handover %q: no outcome: %w: the log of the server says what has happened", path,
			ctx.Err())
	case err != nil:
		return fmt.Errorf("--handover %q: %w", path, err)
	case a.Refused != "":
		return fmt.Errorf("no upgrade, the server goes on as it was: %s", a.Refused)
	case a.Outcome == nil:
		return fmt.Errorf("--handover %q: the answer has no outcome", path)
	}
	_, err = fmt.Fprintln(stdout, a.Outcome)
	return err
}

// String says what has happened.
func (o outcome) String() string {
	return fmt.Sprintf("process %d goes on: %s moved, with a pause of %v; %s stayed with process %d, which ends them",
		o.To,
		connections(o.Moved), o.Pause.Round(100*time.Microsecond), connections(o.Left), o.From)
}

func connections(n int) string {
	if n == 1 {
		return "1 connection"
	}
	return fmt.Sprintf("%d connections", n)
}
