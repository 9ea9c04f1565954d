package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/myriad-go/myriad/bench/check"
	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/myriad-go/myriad/handover"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/web"
)

// serveUpgrades serves channels with a history. At SIGUSR2 it starts its own program, and hands its
// clients over to that, as myriad serve does. The new process goes on with the standard input and
// output.
func serveUpgrades(addr string) (net.Addr, error) {
	pusher, engine, err := newPusher(push.Config{Namespaces: []push.Namespace{
		{HistorySize: check.HistorySize, HistoryAge: check.HistoryAge, Recovery: true}}})
	if err != nil {
		return nil, err
	}
	server := &web.Server{Handler: pusher, Engine: engine, Dispatch: web.DispatchAuto}
	program := &handover.Program{Engine: engine}
	if err := pusher.AddTo(program, server, "public"); err != nil {
		return nil, err
	}
	from, err := handover.Inherited()
	if err != nil {
		return nil, err
	}
	var taken *handover.Taken
	if from != nil {
		if taken, err = handover.Take(from, program); err != nil {
			return nil, err
		}
	}
	ln, err := server.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	if taken != nil {
		if err := taken.GoOn(); err != nil {
			return nil, err
		}
	}
	asked := make(chan os.Signal, 1)
	handover.Notify(asked)
	go func() {
		<-asked
		given, err := upgrade(pusher, program)
		if err != nil {
			harness.Ended(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), leaving)
		defer cancel()
		err = pusher.Shutdown(ctx) // at once, because nothing is delivered any more to clients that are left
		soon, over := context.WithTimeout(ctx, following)
		defer over()
		_, failed := given.MoveRest(soon)
		if err = errors.Join(err, failed, engine.Shutdown(ctx)); err != nil {
			fmt.Fprintln(os.Stderr, "what has not moved:", err)
		}
		os.Exit(0)
	}()
	return ln.Addr(), nil
}

const (
	// leaving is how long what has not moved may take to end.
	leaving = 5 * time.Second
	// following is how long connections of publishers may take to come to rest, and follow.
	following = time.Second / 2
)

// upgrade starts the program anew, and hands over to it.
func upgrade(pusher *push.Server, program *handover.Program) (*handover.Given, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	nc, err := handover.Start(cmd)
	if err != nil {
		return nil, err
	}
	pusher.PrepareMove(true)
	return handover.Give(nc, program)
}
