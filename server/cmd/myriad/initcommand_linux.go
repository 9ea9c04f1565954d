package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"
)

// This file is the first process of a container, or what a supervisor runs in the place of a
// server. A server that is upgraded ends, and a new one goes on: the container would end, and the
// supervisor would start another one. This process stays, and ends when the last server has ended.

func initCommand() *cli.Command {
	return &cli.Command{
		Name:      "init",
		Usage:     "run a server, and stay while upgrades replace it: for containers and supervisors",
		ArgsUsage: "serve [options of serve]",
		Description: "It passes signals on to the server that serves at the time, waits for processes that have " +
			"lost their parent,\nand ends as the last server does.",
		SkipFlagParsing: true,
		HideHelp:        true,
		Flags:           []cli.Flag{&cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show help"}},
		Action: func(_ context.Context, c *cli.Command) error {
			switch c.Args().First() {
			case "--help", "-h":
				return cli.ShowSubcommandHelp(c)
			case "serve":
				return keepServing(c.Args().Slice())
			}
			return fmt.Errorf("write myriad init serve, and its options; %q is not serve", c.Args().First())
		},
	}
}

// An exitStatus is how a process ends whose only word is its status.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// keepServing starts this program with args, and returns when that and all its successors have
// ended.
func keepServing(args []string) error {
	// Signals are caught before there is a process that they are for. That one is in a group of its
	// own, so that it does not get those of a terminal twice.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR2,
		syscall.SIGQUIT)
	defer signal.Stop(signals)
	if os.Getpid() != 1 {
		// The kernel gives the children of processes that end to this one.
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("prctl: %w", err)
		}
	}
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return err
	}
	p, err := os.StartProcess(path, append([]string{os.Args[0]}, args...), &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		return err
	}
	f := first{server: p.Pid}
	_ = p.Release() // reap waits for it
	for s := range signals {
		if status, over := f.adopt(); over {
			return endAs(status)
		}
		if s != syscall.SIGCHLD {
			f.passOn(s.(syscall.Signal))
		}
	}
	return nil
}

// endAs returns the error with which main ends as a process with that status. nil: it was 0.
func endAs(status syscall.WaitStatus) error {
	switch {
	case status.Signaled():
		return exitStatus(128 + int(status.Signal()))
	case status.ExitStatus() != 0:
		return exitStatus(status.ExitStatus())
	}
	return nil
}

// A first is the first process of a container: what it knows of the server.
type first struct {
	server int            // the latest that is known to have taken over
	ending syscall.Signal // the signal to end that came last; 0: none
	told   []int          // processes that have got it
	missed []syscall.Signal
}

// adopt waits for processes that have ended. If the server is among them, its successor is the
// server from then on. If it has none, all is over.
func (f *first) adopt() (status syscall.WaitStatus, over bool) {
	status, ended := reap(f.server)
	if !ended {
		return status, false
	}
	if f.server = adopted(); f.server == 0 {
		return status, true
	}
	if f.ending != 0 {
		f.tell(f.server) // it may have been no child of the old one any more when the signal came
	}
	missed := f.missed
	f.missed = nil
	for _, s := range missed {
		f.passOn(s)
	}
	return status, false
}

// passOn sends the signal to the server. While a new one takes its place there are two. That to end
// is for both. Others are for the one that serves, or will soon.
func (f *first) passOn(s syscall.Signal) {
	all := []int{f.server}
	for next := successorOf(f.server); next != 0 && !slices.Contains(all, next); next = successorOf(next) {
		all = append(all, next)
	}
	if s != syscall.SIGHUP && s != syscall.SIGUSR2 {
		f.ending, f.told = s, nil
		for _, pid := range all {
			f.tell(pid)
		}
		return
	}
	for len(all) > 1 && catchesUpgrades(all[len(all)-1]) != nil {
		all = all[:len(all)-1]
	}
	pid := all[len(all)-1]
	if _ = syscall.Kill(pid, s); !isRunning(pid) {
		f.missed = append(f.missed, s)
	}
}

// tell sends the signal to end to the process, once.
func (f *first) tell(pid int) {
	if !slices.Contains(f.told, pid) {
		f.told = append(f.told, pid)
		_ = syscall.Kill(pid, f.ending) // if it has ended, SIGCHLD comes
	}
}

// reap waits for all processes that have ended. It reports whether the server is one of them.
func reap(server int) (status syscall.WaitStatus, ended bool) {
	for {
		var one syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &one, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || pid <= 0:
			return status, ended
		case pid == server:
			status, ended = one, true
		}
	}
}

// adopted returns the successor of a server that has ended: the kernel has made it a child of this
// process. 0: there is none.
func adopted() int {
	for _, pid := range childrenOf(os.Getpid()) {
		if predecessorOf(pid) != 0 && isRunning(pid) {
			return pid
		}
	}
	return 0
}
