package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"

	"github.com/myriad-go/myriad/handover"
	"github.com/myriad-go/myriad/server/push"
)

// This file upgrades the server while its clients stay connected. At SIGUSR2 the process starts its
// own program again, which the operator has replaced by a newer one. It hands its listeners,
// connections and state over to the new process.

// program returns what of the server moves. The names are the same in all versions.
func (r *running) program() (*handover.Program, error) {
	p := &handover.Program{Engine: r.engine}
	for i, h := range r.servers {
		if err := r.pusher.AddTo(p, h, [...]string{"public", "admin"}[i]); err != nil {
			return nil, err
		}
	}
	t, err := r.door.Thawer()
	if err != nil {
		return nil, err
	}
	p.Servers["redis"] = t
	return p, nil
}

// mayUpgrade returns why another process cannot take the place of this one.
func (r *running) mayUpgrade() error {
	if r.clusterNode != nil {
		return push.ErrCannotMove
	}
	for _, a := range r.list() {
		if a.kind == inheritedAddress {
			return a.wrong("sockets of the service manager do not move yet: restart the server, or let it listen " +
				"by itself")
		}
	}
	return nil
}

// upgrade hands everything over to a new process. If it fails, everything goes on here. If ctx ends
// meanwhile, the new process is told to shut down: an operator may know only the old one's pid.
func (r *running) upgrade(ctx context.Context, manager *notifier) error {
	if err := r.mayUpgrade(); err != nil {
		return err
	}
	p, err := r.program()
	if err != nil {
		return err
	}
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return err
	}
	cmd := exec.Command(path, os.Args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdout, os.Stderr, r.recipient.successorEnviron(os.Environ())
	nc, err := handover.Start(cmd)
	if err != nil {
		return err
	}
	r.pusher.PrepareMove(true)
	given, err := handover.Give(nc, p)
	if err != nil {
		r.pusher.PrepareMove(false)
		_ = cmd.Process.Kill() // it may have ended already
		return errors.Join(err, ended(cmd.Wait()))
	}
	if err := manager.handOver(cmd.Process.Pid); err != nil {
		r.log.Error("myriad: the service manager was not told of the new process", "pid", cmd.Process.Pid, "error", err)
	}
	r.log.Info("myriad: a new process goes on", "pid", cmd.Process.Pid, "connections", given.Moved,
		"left", r.engine.Stats().Conns) // also those of servers that do not move
	if ctx.Err() == nil {
		return nil
	}
	r.log.Info("myriad: passing on the signal to shut down", "pid", cmd.Process.Pid)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		r.log.Error("myriad: the new process was not told to shut down", "pid", cmd.Process.Pid, "error", err)
	}
	return nil
}

// ended returns err unless it says how the process has ended.
func ended(err error) error {
	if errors.As(err, new(*exec.ExitError)) {
		return nil
	}
	return err
}

// take receives everything from the process that has started this one; nil: none has. Nothing of it
// runs until GoOn.
func (r *running) take(from *net.UnixConn, certificates *keeper) (*handover.Taken, error) {
	if from == nil {
		return nil, nil
	}
	if err := r.mayUpgrade(); err != nil {
		return nil, errors.Join(err, from.Close())
	}
	for i, a := range r.list() {
		if certificates != nil && !a.isUnix() {
			r.servers[i].TLSConfig = certificates.config()
		}
	}
	p, err := r.program()
	if err != nil {
		return nil, errors.Join(err, from.Close())
	}
	taken, err := handover.Take(from, p)
	if err != nil {
		return nil, fmt.Errorf("taking the place of another process: %w", err)
	}
	return taken, nil
}
