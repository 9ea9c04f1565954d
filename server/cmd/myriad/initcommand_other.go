//go:build !linux

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"
)

func initCommand() *cli.Command {
	return &cli.Command{Name: "init", Usage: "run a server in a container (Linux)", SkipFlagParsing: true,
		Action: func(context.Context, *cli.Command) error { return errors.New("init needs Linux") }}
}

// An exitStatus is how a process ends whose only word is its status.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }
