package resp

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// simSeeds is how many worlds a test sees.
const simSeeds = 20

// simStore is a handler for the simulator: its commands wait in no other way than by the world.
func simStore(e func() *myriad.Engine) *Mux {
	m := NewMux()
	m.Handle("ECHO", 2, func(w *Reply, c *Command) { w.Bulk(c.Args[1]) }, "Return the message.")
	m.Handle("BIG", 2, func(w *Reply, c *Command) {
		n, _ := parseInt(c.Args[1])
		w.Text(strings.Repeat("x", int(n)))
	}, "Return so many bytes.")
	m.Handle("SLEEP", 1, func(w *Reply, c *Command) {
		engine := e()
		if engine.HandOff() {
			engine.System().NewParker().ParkFor(3 * time.Millisecond)
		}
		w.OK()
	}, "Wait.")
	return m
}

// A pipeline in a world with faults: what arrives of the replies is what was asked for, in order,
// and without faults that end connections all of it arrives.
func TestServerSimulation(t *testing.T) {
	for seed := range uint64(simSeeds) {
		for _, d := range dispatches {
			for _, faults := range []sim.Options{sim.Lossless(), {}} {
				runServerWorld(t, seed, d, faults)
			}
		}
	}
}

func runServerWorld(t *testing.T, seed uint64, d Dispatch, faults sim.Options) {
	t.Helper()
	lossless := faults.Reset < 0
	w := sim.New(seed, faults)
	e, err := myriad.Start(myriad.Config{Loops: 2, System: w, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Engine: e, Dispatch: d, Logger: quiet(), WriteLimit: 4 << 10,
		Handler: simStore(func() *myriad.Engine { return e })}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	type client struct{ got, want []byte }
	var clients []*client
	for i := range 4 {
		c := &client{}
		clients = append(clients, c)
		p := w.Dial(ln.Addr())
		p.OnReceived = func(b []byte) { c.got = append(c.got, b...) }
		var in []byte
		for j := range 60 {
			text := fmt.Sprintf("%d-%d-%s", i, j, strings.Repeat("y", j*j%500))
			switch {
			case j%11 == 5 && d != DispatchInline:
				in = AppendCommand(in, "SLEEP")
				c.want = append(c.want, "+OK\r\n"...)
			case j%17 == 3:
				in = AppendCommand(in, "BIG", "3000")
				c.want = AppendBulk(c.want, strings.Repeat("x", 3000))
			default:
				in = AppendCommand(in, "ECHO", text)
				c.want = AppendBulk(c.want, text)
			}
		}
		p.Write(in)
		p.CloseWrite()
	}
	w.RunFor(time.Minute)
	for i, c := range clients {
		if !strings.HasPrefix(string(c.want), string(c.got)) || lossless && len(c.got) != len(c.want) {
			t.Errorf("seed %d, %v: client %d has %d bytes, of %d; the last are %.60q", seed, d, i, len(c.got),
				len(c.want),
				c.got[max(0, len(c.got)-60):])
		}
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	if err := e.Shutdown(context.Background()); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	w.Run()
	w.Check(t)
}
