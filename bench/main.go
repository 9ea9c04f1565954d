// Command bench measures servers side by side: ours, those of others, and one in C that does
// nothing.
//
//	go run ./bench list
//	go run ./bench run http-100 --rounds 3 --duration 3s
//	go run ./bench all --save results.json
//	go run ./bench report results.json
//
// Every server is a process of its own and is measured from outside. docs/BENCHMARKS.md says how,
// and what the figures mean.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/myriad-go/myriad/bench/attack"
	"github.com/myriad-go/myriad/bench/crowd"
	"github.com/myriad-go/myriad/bench/load"
	traffic "github.com/myriad-go/myriad/server/load"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == driveCommand {
		load.Main()
		return
	}
	if len(os.Args) == 2 && os.Args[1] == attackCommand {
		attack.Main()
		return
	}
	if len(os.Args) == 2 && os.Args[1] == crowdCommand {
		crowd.Main()
		return
	}
	if len(os.Args) == 2 && os.Args[1] == trafficCommand {
		if err := traffic.Work(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench: clients:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := command(os.Stdout, os.Stderr).Run(ctx, os.Args)
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted; all servers have been ended")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
