package resp

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/resp/wire"
)

// A client that still takes the reply before is not idle, however long ago its command was. One
// that has stopped reading is found within twice the time.
func TestIdleBeginsBehindTheReply(t *testing.T) {
	const size, idle = 1 << 20, time.Second
	w := sim.New(1, sim.Calm())
	e, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: quiet(), WriteLimit: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Engine: e, Dispatch: DispatchInline, Logger: quiet(), IdleTimeout: idle, WriteLimit: 2 << 20,
		Handler: simStore(func() *myriad.Engine { return e })}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	want := string(wire.AppendBulk(nil, strings.Repeat("x", size)))
	ask := func() *sim.Peer {
		p := w.Dial(ln.Addr())
		p.StopReading()
		p.Write(wire.AppendCommand(nil, "BIG", "1048576"))
		return p
	}
	slow, dead := ask(), ask()
	slow.OnReceived = func([]byte) { slow.StopReading() }
	for range 60 { // it reads what its socket holds, now and then
		w.RunFor(idle / 2)
		slow.Resume()
	}
	if got := slow.TakeReceived(); string(got) != want {
		t.Errorf("%d bytes of a reply of %d came; the connection's error is %v", len(got), len(want), slow.Err())
	}
	dead.Resume()
	w.RunFor(100 * time.Millisecond)
	if dead.Err() == nil {
		t.Error("a client that does not read is not aborted")
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := e.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	w.Run()
	w.Check(t)
}

// A server is not silent while the command waits for the client's own loop.
func TestSilenceBeginsBehindTheCommand(t *testing.T) {
	const crowd = 300
	c := &Client{Silence: time.Second}
	w := newScriptedWorld(t, c, func(_ int, _ *sim.Peer, args []string) string { return simple(args) })
	others := &crowded{}
	ln, err := c.Engine.Listen("tcp", "127.0.0.1:0", others)
	if err != nil {
		t.Fatal(err)
	}
	peers := make([]*sim.Peer, crowd)
	for i := range peers {
		peers[i] = w.Dial(ln.Addr())
	}
	w.RunFor(time.Second)
	var answers []error
	ask := func() { c.Start(func(_ Value, err error) { answers = append(answers, err) }, "ECHO", "x") }
	ask()
	w.RunFor(time.Second)
	w.SetCosts(sim.Costs{Send: 20 * time.Millisecond}) // 6 s for the crowd
	for _, other := range others.conns {
		other.Write([]byte("first"))
	}
	ask()
	w.RunFor(10 * time.Second)
	w.SetCosts(sim.Costs{})
	if len(answers) != 2 || answers[0] != nil || answers[1] != nil {
		t.Errorf("the commands ended with %v, want two answers", answers)
	}
	for _, p := range peers {
		p.Close()
	}
	ln.Close()
	w.RunFor(time.Second)
}

// crowded keeps its conns.
type crowded struct{ conns []*myriad.Conn }

func (c *crowded) Opened(nc *myriad.Conn)       { c.conns = append(c.conns, nc) }
func (*crowded) Received(*myriad.Conn, []byte)  {}
func (*crowded) Closed(_ *myriad.Conn, _ error) {}
