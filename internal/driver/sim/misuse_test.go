package sim_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// rig is a bare driver with one connection, owned by the test.
type rig struct {
	t   *testing.T
	w   *sim.World
	d   driver.Driver
	l   driver.Listener
	p   *sim.Peer
	id  driver.ID
	lid driver.ID
	on  func(event string, id driver.ID)
}

func newRig(t *testing.T, o sim.Options) *rig {
	t.Helper()
	return newSeededRig(t, 11, o)
}

func newSeededRig(t *testing.T, seed uint64, o sim.Options) *rig {
	t.Helper()
	r := &rig{t: t, w: sim.New(seed, o)}
	var err error
	if r.l, err = r.w.Listen(context.Background(), "tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if r.d, err = r.w.Open(1, driver.Options{ReadBuffer: 1000}); err != nil {
		t.Fatal(err)
	}
	if r.lid, err = r.d.Listen(r.l); err != nil {
		t.Fatal(err)
	}
	r.p = r.w.Dial(r.l.Addr())
	r.poll(func() bool { return r.id != 0 })
	return r
}

func (r *rig) poll(done func() bool) {
	r.t.Helper()
	for range 10_000 {
		if done() {
			return
		}
		if _, err := r.d.Poll(time.Second, r); err != nil {
			r.t.Fatal(err)
		}
	}
	r.t.Fatal("it never happened")
}

func (r *rig) tell(event string, id driver.ID) {
	if r.on != nil {
		r.on(event, id)
	}
}

func (r *rig) Accepted(_ driver.ID, s driver.Socket) {
	id, err := r.d.Attach(s)
	if err != nil {
		r.t.Error(err)
	}
	r.id = id
}
func (r *rig) AcceptFailed(id driver.ID, _ error)     { r.d.ResumeAccept(id) }
func (r *rig) Dialed(id driver.ID, _ driver.Addr)     { r.tell("Dialed", id) }
func (r *rig) DialFailed(id driver.ID, _ error)       { r.tell("DialFailed", id) }
func (r *rig) Received(id driver.ID, p []byte)        { r.tell("Received "+string(p), id) }
func (r *rig) Ended(id driver.ID)                     { r.tell("Ended", id) }
func (r *rig) Sent(id driver.ID, _ int64)             { r.tell("Sent", id) }
func (r *rig) Closed(id driver.ID, _ error)           { r.tell("Closed", id) }
func (r *rig) Detached(id driver.ID, s driver.Socket) { r.tell("Detached", id); s.Close() }

func (r *rig) send(p []byte) int64 {
	var c buf.Chain
	defer c.Release() // if Send panics
	c.Append(p)
	return r.d.Send(r.id, &c)
}

// done releases what the rig holds, so that the process's count of blocks is right for the others.
func (r *rig) done() {
	if err := r.d.Shutdown(); err != nil {
		r.t.Error(err)
	}
	if err := r.l.Close(); err != nil {
		r.t.Error(err)
	}
	r.w.Run()
	r.w.Check(r.t)
}

var misuses = []struct {
	name string
	do   func(r *rig)
	says string
}{
	{"Poll inside an event", func(r *rig) {
		r.p.Write([]byte("x"))
		r.on = func(string, driver.ID) { r.d.Poll(0, r) }
		r.poll(func() bool { return false })
	}, "Poll inside an event"},
	{"Shutdown inside an event", func(r *rig) {
		r.p.Write([]byte("x"))
		r.on = func(string, driver.ID) { r.d.Shutdown() }
		r.poll(func() bool { return false })
	}, "Shutdown inside Poll"},
	{"a call by a goroutine of the world", func(r *rig) {
		r.w.Go(func() { r.d.Pause(r.id) })
		r.w.Run()
	}, "Pause on goroutine"},
	{"a call by another goroutine outside", func(r *rig) {
		said := make(chan any)
		go func() {
			defer func() { said <- recover() }()
			for range 100 {
				r.d.Pause(r.id)
			}
		}()
		panic(<-said)
	}, "one goroutine makes every call but Wake"},
	{"a call by a goroutine outside for an actor", func(r *rig) {
		said := make(chan any, 1)
		r.w.Go(func() {
			r.d.(interface{ Own() }).Own()
			go func() {
				defer func() { said <- recover() }()
				r.d.Pause(r.id)
			}()
			for len(said) == 0 { // the actor keeps the token meanwhile
				runtime.Gosched()
			}
		})
		r.w.Run()
		what := <-said
		r.d.(interface{ Own() }).Own() // for the end of the test
		panic(what)
	}, "one goroutine makes every call but Wake"},
	{"Send while a file is sent", func(r *rig) {
		r.p.StopReading()
		if _, err := r.d.SendFile(r.id, zeros{}, 0, 1<<30); err != nil {
			r.t.Error(err)
		}
		r.send([]byte("x"))
	}, "Send on 100000100000001 while SendFile is not reported sent"},
	{"Send after CloseWrite", func(r *rig) { r.d.CloseWrite(r.id); r.send([]byte("x")) },
		"Send on 100000100000001 after CloseWrite"},
	{"bytes change after Send", func(r *rig) {
		r.p.StopReading()
		block := buf.Get(1 << 20)
		defer block.Release()
		p := block.Extend()
		block.Commit(len(p))
		var c buf.Chain
		c.AppendBlock(block.Retain())
		r.d.Send(r.id, &c)
		for i := range p {
			p[i] = 'x'
		}
		r.p.Resume()
		r.poll(func() bool { return false })
	}, "changed after Send"},
	{"Send before Dialed", func(r *rig) {
		id, err := r.d.Dial(r.l.Addr())
		if err != nil {
			r.t.Error(err)
		}
		r.id = id
		r.send([]byte("x"))
	}, "before Dialed"},
	{"Close of a listener", func(r *rig) { r.d.Close(r.lid) }, "Close of listener"},
	{"CloseListener of a connection", func(r *rig) { r.d.CloseListener(r.id) }, "it is not a listener"},
	{"a listener closed too early", func(r *rig) { r.l.Close() }, "CloseListener comes first"},
	{"a socket used twice", func(r *rig) {
		var s driver.Socket
		if err := r.d.Detach(r.id); err != nil {
			r.t.Error(err)
		}
		for s == nil {
			k := &detachKeeper{}
			if _, err := r.d.Poll(time.Second, k); err != nil {
				r.t.Error(err)
			}
			s = k.s
		}
		if err := s.Close(); err != nil {
			r.t.Error(err)
		}
		r.d.Attach(s)
	}, "Attach of a socket that was closed or given on"},
	{"a wait inside a peer's callback", func(r *rig) {
		r.p.OnEnded = func() { r.w.NewParker().Park() }
		r.d.CloseWrite(r.id)
		r.w.Run()
	}, "inside a peer's callback"},
	{"two in one Parker", func(r *rig) {
		p := r.w.NewParker()
		r.w.Go(p.Park)
		r.w.Go(p.Park)
		r.w.Run()
	}, "two goroutines wait on one Parker"},
}

// What the contract forbids panics, and says what was wrong.
func TestMisuse(t *testing.T) {
	for _, tc := range misuses {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, sim.Calm())
			defer r.w.Kill()
			said := panics(t, func() { tc.do(r) })
			mustSay(t, said, "sim: seed 11", tc.says)
			r.on = nil
			if tc.name != "Shutdown inside an event" {
				r.d.Shutdown()
			}
		})
	}
}

func TestCallsAfterShutdown(t *testing.T) {
	r := newRig(t, sim.Calm())
	r.done()
	mustSay(t, panics(t, func() { r.d.Pause(r.id) }), "Pause after Shutdown")
	r.d.Wake()
}

// zeros is a file without end.
type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) { clear(p); return len(p), nil }
func (zeros) Close() error                          { return nil }

type detachKeeper struct {
	driver.Events
	s driver.Socket
}

func (k *detachKeeper) Detached(_ driver.ID, s driver.Socket) { k.s = s }

// What Received lends is overwritten when the event returns, so that code that keeps it reads
// garbage at once.
func TestViewsAreOverwritten(t *testing.T) {
	r := newRig(t, sim.Calm())
	var kept []byte
	k := &viewKeeper{}
	r.p.Write([]byte("secret"))
	for kept == nil {
		if _, err := r.d.Poll(time.Second, k); err != nil {
			t.Fatal(err)
		}
		kept = k.p
	}
	if k.saw != "secret" || string(kept) == "secret" {
		t.Errorf("saw %q, and %q is still there afterwards", k.saw, kept)
	}
	r.done()
}

type viewKeeper struct {
	driver.Events
	p   []byte
	saw string
}

func (k *viewKeeper) Received(_ driver.ID, p []byte) { k.p, k.saw = p, string(p) }
