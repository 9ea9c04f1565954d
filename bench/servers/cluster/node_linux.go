package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/doors"
	"github.com/myriad-go/myriad/server/push/natsbus"
	"github.com/myriad-go/myriad/web"
)

// idlePing is longer than any run: the load driver does not answer pings.
const idlePing = time.Hour

// runNode is a node of a cluster of package push, put together as "myriad serve" puts it together.
// It does not return.
func runNode(args []string) error {
	flags := flag.NewFlagSet("node", flag.ExitOnError)
	listen := flags.String("listen", "", "for clients")
	name := flags.String("name", "", "of the node")
	peer := flags.String("peer", "", "for other nodes")
	peers := flags.String("peers", "", "those of all nodes")
	dir := flags.String("data", "", "folder")
	lazy := flags.Bool("lazy", false, "do not sync each publication")
	kept := flags.Bool("kept", false, "channels have a history")
	recovers := flags.Bool("recover", false, "and clients recover from it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	var interval time.Duration
	if *lazy {
		interval = 2 * time.Minute
	}
	server, err := natsbus.StartServer(natsbus.ServerConfig{Name: *name, Dir: *dir + "/jetstream", Listen: *peer,
		Routes: strings.Split(*peers, ","), SyncInterval: interval, Logger: log})
	if err != nil {
		return err
	}
	rules := push.Namespace{}
	config := natsbus.Config{Server: server, Node: *name, Dir: *dir + "/positions", Synced: !*lazy, Logger: log}
	if *kept {
		rules.HistorySize, rules.HistoryAge, rules.Recovery = historySize, historyAge, *recovers
		config.Retentions = []bus.Retention{rules.Retention()}
	}
	opened, err := natsbus.Open(context.Background(), config)
	if err != nil {
		return err
	}
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		return err
	}
	pusher, err := push.New(push.Config{Doors: doors.All(doors.Config{}), Logger: log, Bus: opened, Node: *name,
		Namespaces: []push.Namespace{rules},
		Timing:     push.Timing{Ping: idlePing}})
	if err != nil {
		return err
	}
	ln, err := (&web.Server{Handler: pusher, Engine: engine, Dispatch: web.DispatchAuto}).Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Println("listening", ln.Addr())
	select {}
}
