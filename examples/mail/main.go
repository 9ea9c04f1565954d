// Command mail is a mail program with a live inbox: pages do not poll, because the store notifies
// them.
//
//	go run ./examples/mail                  then open http://127.0.0.1:8080/?user=ann
//	curl -d 'to=ann' -d 'from=bob' -d 'subject=Lunch?' http://127.0.0.1:8080/api/deliver
//	go run ./examples/mail compare          the same inbox by polling and by push, measured
//
// It has no login: it listens to this machine only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/doors/sse"
	"github.com/myriad-go/myriad/web"
)

// drainTimeout is how long requests that have begun, and what is queued for pages, may take once
// the program is told to end. It is above the five seconds that Shutdown gives a connection to
// begin its first request: browsers and http.Transport dial more than they use.
const drainTimeout = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	args := os.Args[1:]
	command := run
	if len(args) > 0 && args[0] == "compare" {
		args, command = args[1:], compare
	}
	if err := command(ctx, args); err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("mail", flag.ContinueOnError)
	addr := flags.String("listen", "127.0.0.1:8080", "host:port to listen on")
	robot := flags.Duration("robot", 5*time.Second, "how often a robot writes to ann; 0: never")
	if err := parse(flags, args); err != nil {
		return err
	}
	m, err := start(*addr)
	if err != nil {
		return err
	}
	log.Print("listening on ", m.listener.Addr(), ": open http://", m.listener.Addr(), "/?user=ann")
	if *robot > 0 {
		go write(ctx, m.store, "ann", *robot)
	}
	<-ctx.Done()
	return m.stop()
}

func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("mail: it takes no argument %q: see --help", flags.Arg(0))
	}
	return nil
}

// A program is the running server.
type program struct {
	store    *store
	pusher   *push.Server
	server   *web.Server
	listener *web.Listener
}

// channel is where a user's changes are published.
func channel(user string) string { return "mail:" + user }

func start(addr string) (*program, error) {
	pusher, err := push.New(push.Config{DenyClientPublish: true, DisableConsole: true, Doors: []push.Door{sse.New()}})
	if err != nil {
		return nil, err
	}
	s := newStore(func(user string, change []byte) {
		if err := pusher.Publish(context.Background(), channel(user), change); err != nil {
			slog.Error("mail: a change was not published", "user", user, "error", err) // pages find it by its number
		}
	})
	m := &program{store: s, pusher: pusher, server: &web.Server{Handler: routes(s, pusher),
		ReadTimeout: 10 * time.Second}}
	if m.listener, err = m.server.Listen("tcp", addr); err != nil {
		return nil, errors.Join(err, pusher.Shutdown(context.Background()))
	}
	return m, nil
}

func (m *program) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	return errors.Join(m.pusher.Shutdown(ctx), m.server.Shutdown(ctx))
}
