// Command kv is a small store that Redis clients speak to: strings, counters, hashes, times to
// live, channels, and snapshots to a file.
//
//	go run ./examples/kv --listen 127.0.0.1:6380 --file kv.snapshot
//	redis-cli -p 6380 set greeting hello
//	redis-benchmark -p 6380 -q -t set,get,incr,hset,mset
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"time"

	"github.com/myriad-go/myriad/resp"
)

// drainTimeout is how long commands that have begun may take once the program is told to end.
const drainTimeout = 10 * time.Second

// A config is the program's flags.
type config struct {
	listen, file, password string
	slow                   float64
	delay                  time.Duration
}

func main() {
	var c config
	flag.StringVar(&c.listen, "listen", "127.0.0.1:6380", "host:port to listen on")
	flag.StringVar(&c.file, "file", "", "where SAVE writes to, and what is read at the start")
	flag.StringVar(&c.password, "password", "", "what clients must AUTH with")
	flag.Float64Var(&c.slow, "slow", 0, "percent of the commands that sleep")
	flag.DurationVar(&c.delay, "delay", 5*time.Millisecond, "for how long they do")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, c, func(addr string) { log.Print("serving on ", addr) }); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends, and saves then.
func run(ctx context.Context, c config, listening func(addr string)) error {
	k := newKV(c)
	if c.file != "" {
		if err := k.store.load(c.file); err != nil {
			return err
		}
	}
	ln, err := k.server.Listen("tcp", c.listen)
	if err != nil {
		return err
	}
	listening(ln.Addr().String())
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			if k.store.expiry.Load() > 0 {
				k.store.sweep()
			}
		}
	}
	drain, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	err = k.server.Shutdown(drain)
	if c.file != "" {
		err = errors.Join(err, k.store.save(c.file))
	}
	return err
}

// kv is the server with its store.
type kv struct {
	config
	store    *store
	server   *resp.Server
	channels resp.PubSub
	began    time.Time
}

func newKV(c config) *kv {
	k := &kv{config: c, store: newStore(time.Now), began: time.Now()}
	m := resp.NewMux()
	k.store.register(m)
	k.channels.Register(m)
	m.Handle("INFO", -1, k.info, "Get information about the server.")
	m.Handle("SAVE", 1, k.save, "Write a snapshot.")
	m.Handle("CONFIG GET", -3, func(w *resp.Reply, c *resp.Command) {
		w.Map(len(c.Args) - 2)
		for _, name := range c.Args[2:] {
			w.Bulk(name)
			w.Text("")
		}
	}, "Return parameters, of which there are none.")
	k.server = &resp.Server{Handler: m}
	if c.slow > 0 {
		k.server.Handler = resp.HandlerFunc(func(w *resp.Reply, cmd *resp.Command) {
			if rand.Float64()*100 < c.slow {
				time.Sleep(c.delay)
			}
			m.ServeRESP(w, cmd)
		})
	}
	if c.password != "" {
		k.server.Auth = func(_ *resp.Conn, user, password string) bool {
			return user == "default" && password == c.password
		}
	}
	return k
}

func (k *kv) save(w *resp.Reply, _ *resp.Command) {
	if k.file == "" {
		w.Error("ERR start with --file to save")
		return
	}
	if err := k.store.save(k.file); err != nil {
		w.Error("ERR " + err.Error())
		return
	}
	w.OK()
}

func (k *kv) info(w *resp.Reply, _ *resp.Command) {
	w.Verbatim("txt",
		fmt.Sprintf("# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nos:%s\r\nprocess_id:%d\r\n"+
			"uptime_in_seconds:%d\r\n\r\n# Clients\r\nconnected_clients:%d\r\n\r\n# Persistence\r\nloading:0\r\n\r\n"+
			"# Replication\r\nrole:master\r\n\r\n# Keyspace\r\ndb0:keys=%d,expires=%d\r\n", runtime.GOOS, os.Getpid(),
			int(time.Since(k.began).Seconds()), k.server.Conns(), k.store.size(), k.store.expiry.Load()))
}
