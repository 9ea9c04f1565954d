package resp

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/resp/wire"
)

// simStore is a handler for the simulator: its commands wait in no other way than by the world.
func simStore(e func() *myriad.Engine) *Mux {
	m := NewMux()
	m.Handle("ECHO", 2, func(w *Reply, c *Command) { w.Bulk(c.Args[1]) }, "Return the message.")
	m.Handle("BIG", 2, func(w *Reply, c *Command) {
		n, _ := wire.ParseInt(c.Args[1])
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
	for seed := range soak.Size(t, uint64(12), 1000) {
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
				in = wire.AppendCommand(in, "SLEEP")
				c.want = append(c.want, "+OK\r\n"...)
			case j%17 == 3:
				in = wire.AppendCommand(in, "BIG", "3000")
				c.want = wire.AppendBulk(c.want, strings.Repeat("x", 3000))
			default:
				in = wire.AppendCommand(in, "ECHO", text)
				c.want = wire.AppendBulk(c.want, text)
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

// Messages that are pushed while a connection sends commands come between its replies, whole and in
// order, whatever Overflow does with those that have no room.
func TestPushSimulation(t *testing.T) {
	for seed := range soak.Size(t, uint64(24), 2000) {
		for _, faults := range []sim.Options{sim.Lossless(), {}} {
			runPushWorld(t, seed, Overflow(seed%uint64(outbox.Policies)), faults)
		}
	}
}

func runPushWorld(t *testing.T, seed uint64, policy Overflow, faults sim.Options) {
	t.Helper()
	lossless := faults.Reset < 0
	w := sim.New(seed, faults)
	e, err := myriad.Start(myriad.Config{Loops: 2, System: w, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	var channels PubSub
	mux := simStore(func() *myriad.Engine { return e })
	channels.Register(mux)
	s := &Server{Engine: e, Handler: mux, Logger: quiet(), WriteLimit: 2 << 10, Overflow: policy, PushTimeout: -1}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const echoes, messages = 40, 60
	var got [3][]byte
	for i := range got {
		p := w.Dial(ln.Addr())
		p.OnReceived = func(b []byte) { got[i] = append(got[i], b...) }
		p.Write(wire.AppendCommand(wire.AppendCommand(nil, "HELLO", "3"), "SUBSCRIBE", "c"))
		for j := range echoes {
			p.Write(wire.AppendCommand(nil, "ECHO", strings.Repeat("x", j*j%300)+fmt.Sprint(".", j)))
		}
	}
	w.Go(func() {
		for j := range messages {
			w.NewParker().ParkFor(time.Duration(1+j*j%7) * 10 * time.Millisecond)
			channels.Publish("c", fmt.Appendf(nil, "%s.%d", strings.Repeat("m", j*j%200), j))
		}
	})
	w.RunFor(10 * time.Minute)
	for i := range got {
		r, err := readPushed(got[i])
		// A connection whose policy is to wait loses none from its first message on.
		whole := !lossless || policy == OverflowClose || r.replies == echoes &&
			(policy != OverflowBlock || r.last == messages-1 && r.pushed == messages-r.first)
		if err != nil || !whole {
			t.Errorf("seed %d, %v: client %d has got %+v: %v", seed, policy, i, r, err)
		}
	}
	_ = s.Close() // the peers do not end by themselves
	if err := e.Shutdown(context.Background()); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	w.Run()
	w.Check(t)
}

// received is what a client has got: replies to ECHO, and messages.
type received struct{ replies, pushed, first, last int }

// readPushed fails unless both are whole and in order, with none missing among the replies.
func readPushed(p []byte) (r received, err error) {
	r.last = -1
	for len(p) > 0 {
		n, v, err := wire.ParseValue(p, Limits{})
		if n == 0 || err != nil {
			return r, err // the rest has not come
		}
		p = p[n:]
		switch {
		case v.Kind == wire.Push && v.Elems[0].Text() == "message":
			_, number, _ := strings.Cut(v.Elems[2].Text(), ".")
			j, ok := wire.ParseInt([]byte(number))
			if !ok || int(j) <= r.last {
				return r, fmt.Errorf("message %q is not in order", v.Elems[2].Text())
			}
			if r.last = int(j); r.pushed == 0 {
				r.first = r.last
			}
			r.pushed++
		case v.Kind == wire.Bulk:
			if !strings.HasSuffix(v.Text(), fmt.Sprint(".", r.replies)) {
				return r, fmt.Errorf("reply %q is not in order", v.Text())
			}
			r.replies++
		case v.Kind != wire.Map && v.Kind != wire.Push:
			return r, fmt.Errorf("a %c: %v", v.Kind, v)
		}
	}
	return r, nil
}
