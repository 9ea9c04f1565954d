package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
		Description: "It passes signals on to the server that serves at the time, waits for processes that others have " +
			"left,\nand ends as the last server does.",
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
	server := p.Pid
	_ = p.Release() // reap waits for it
	for s := range signals {
		if s != syscall.SIGCHLD {
			passOn(server, s.(syscall.Signal))
			continue
		}
		status, ended := reap(server)
		if !ended {
			continue
		}
		if server = adopted(); server != 0 {
			continue
		}
		if status.Signaled() {
			return exitStatus(128 + int(status.Signal()))
		}
		if status.ExitStatus() != 0 {
			return exitStatus(status.ExitStatus())
		}
		return nil
	}
	return nil
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

// passOn sends the signal to the server. While a new one takes its place there are two. That to end
// is for both. Others are for the one that serves, or will soon.
func passOn(server int, s syscall.Signal) {
	all := []int{server}
	for next := successorOf(server); next != 0 && !slices.Contains(all, next); next = successorOf(next) {
		all = append(all, next)
	}
	if s == syscall.SIGHUP || s == syscall.SIGUSR2 {
		for len(all) > 1 && catchesUpgrades(all[len(all)-1]) != nil {
			all = all[:len(all)-1]
		}
		all = all[len(all)-1:]
	}
	for _, pid := range all {
		_ = syscall.Kill(pid, s) // if it has ended, SIGCHLD comes
	}
}

// adopted returns the successor of a server that has ended: the kernel has made it a child of this
// process. 0: there is none.
func adopted() int {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(text)) {
			pid, _ := strconv.Atoi(child)
			if predecessorOf(pid) != 0 && isRunning(pid) {
				return pid
			}
		}
	}
	return 0
}
