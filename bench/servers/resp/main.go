// Command resp serves the Redis protocol with package resp.
package main

import (
	"flag"
	"net"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/myriad-go/myriad/resp"
)

func main() {
	inline := flag.Bool("inline", false, "run commands on the loop")
	pool := flag.Bool("pool", false, "run commands on the pool")
	loops := flag.Int("loops", 0, "event loops")
	harness.Main(map[string]harness.Start{"resp": func(addr string) (net.Addr, error) {
		engine, err := myriad.Start(myriad.Config{Loops: *loops})
		if err != nil {
			return nil, err
		}
		s := &resp.Server{Engine: engine, Handler: commands()}
		switch {
		case *inline:
			s.Dispatch = resp.DispatchInline
		case *pool:
			s.Dispatch = resp.DispatchPool
		}
		ln, err := s.Listen("tcp", addr)
		if err != nil {
			return nil, err
		}
		return ln.Addr(), nil
	}})
}

func commands() *resp.Mux {
	var keys harness.Keys
	m := resp.NewMux()
	m.Handle("SET", 3, func(w *resp.Reply, c *resp.Command) {
		keys.Set(c.Args[1], c.Args[2])
		w.OK()
	}, "Set a key.")
	m.Handle("GET", 2, func(w *resp.Reply, c *resp.Command) {
		value, ok := keys.AppendGet(nil, c.Args[1])
		if !ok {
			w.Null()
			return
		}
		w.Bulk(value)
	}, "Get a key.")
	m.Handle("SLEEP", 1, func(w *resp.Reply, _ *resp.Command) {
		time.Sleep(harness.Delay)
		w.OK()
	}, "Wait.")
	return m
}
