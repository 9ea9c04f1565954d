package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// This file has servers in fake time, on a simulator without faults.

// A stage is a server with one loop in a simulated world.
type stage struct {
	*sim.World
	engine *myriad.Engine
	at     net.Addr
	conn   *myriad.Conn // the last connection
	loop   uint64       // the goroutine that has opened it
	states []http.ConnState
}

// newStage serves s until the test ends. system is w or something around it.
func newStage(t *testing.T, w *sim.World, system driver.System, s *Server, c myriad.Config) *stage {
	t.Helper()
	c.Loops, c.System, c.Logger = 1, system, quiet()
	engine, err := myriad.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	st := &stage{World: w, engine: engine}
	if s.Engine = engine; s.mostAwake == 0 { // whose connections ConnState knows do not hibernate
		s.ConnState = func(nc net.Conn, state http.ConnState) {
			if state == http.StateNew {
				st.conn, st.loop = nc.(*myriad.Conn), driver.Goroutine()
			}
			st.states = append(st.states, state)
		}
	}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	st.at = ln.Addr()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hangs)
		defer cancel()
		if t.Failed() { // then what the test has left may never end
			time.AfterFunc(time.Second, cancel)
		}
		if err := errors.Join(s.Close(), s.Shutdown(ctx), engine.Shutdown(ctx)); err != nil {
			t.Error(err)
			return
		}
		w.Settle()
		w.Check(t)
	})
	return st
}

func calmStage(t *testing.T, s *Server) *stage {
	w := newWorld(1, sim.Calm())
	return newStage(t, w, w, s, myriad.Config{})
}

// wait is a handler's way to take d of the world's time.
func (s *stage) wait(d time.Duration) { s.NewParker().ParkFor(d) }

// onLoop reports whether its caller runs inline.
func (s *stage) onLoop() bool { return driver.Goroutine() == s.loop }

// ask sends requests for paths and lets the world run for d.
func (s *stage) ask(p *sim.Peer, d time.Duration, paths ...string) {
	for _, path := range paths {
		fmt.Fprintf(writerFunc(p.Write), "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)
	}
	s.RunFor(d)
}

// slow is a server in a world where time is given, and a connection to it.
func slow(t *testing.T, s *Server) (w *sim.World, peer *sim.Peer) {
	w = newWorld(1, sim.Calm())
	engine, err := myriad.Start(myriad.Config{System: w, Logger: quiet(), Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	s.Engine, s.ErrorLog = engine, log.New(io.Discard, "", 0)
	ln, err := s.Listen("tcp", "127.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if err := engine.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		w.Settle()
		w.Check(t)
	})
	return w, w.Dial(ln.Addr())
}
