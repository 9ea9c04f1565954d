package mux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/flow"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
	"github.com/myriad-go/myriad/internal/soak"
)

// A simEnd is one end of a stream in a random world, all on the loop: a server's echoes, a client's
// sends a body and compares.
type simEnd struct {
	Stream
	c      *simConn
	in     flow.Inbox
	got    strings.Builder
	head   []byte
	body   string // still to be sent
	want   string // a client's
	done   bool   // the whole input has been read
	echoed bool   // the end has been put
	ends   int
	err    error
	status int
}

type simConn struct {
	Conn
	w       *simWorld
	streams []*simEnd
	gone    int
	goneErr error
	idle    int
}

type simWorld struct {
	*sim.World
	t   *testing.T
	rng *rand.Rand
	cfg [2]Config // of the server and of the client
}

func (c *simConn) Accept(uint32) *Stream {
	s := c.newEnd()
	return &s.Stream
}

func (c *simConn) newEnd() *simEnd {
	s := &simEnd{c: c}
	s.in.Reset(c.cfg.Window, true)
	s.Init(s)
	c.streams = append(c.streams, s)
	return s
}
func (c *simConn) Settings()              {}
func (c *simConn) GoAway(uint32, h2.Code) {}
func (c *simConn) Idle()                  { c.idle++ }
func (c *simConn) Gone(err error)         { c.gone++; c.goneErr = err }

func (s *simEnd) Head(h *h2.Head, last bool) h2.Code {
	s.status = h.Status
	if h.Method != "" {
		s.head = pairs(":status", "200", "x-path", h.Path)
	}
	if last {
		s.in.Put(nil, true)
	}
	s.pump()
	return h2.NoError
}
func (s *simEnd) Data(p []byte, last bool)  { s.in.Put(p, last); s.pump() }
func (s *simEnd) Trailers(fs []hpack.Field) { s.in.Put(nil, true); s.pump() }
func (s *simEnd) Credit() int               { return s.in.Credit() }
func (s *simEnd) Room()                     { s.pump() }
func (s *simEnd) Ended(_ h2.Code, err error) {
	s.ends++
	s.err = err
	s.in.Discard()
	s.Release()
}

// pump reads what there is and sends what can be sent.
func (s *simEnd) pump() {
	r := s.c.w.rng
	for !s.done {
		p := make([]byte, 1+r.IntN(9000))
		n, tell, err := s.in.Read(p)
		s.got.Write(p[:n])
		if tell {
			s.Notify()
		}
		if s.want == "" && s.status == 0 {
			s.body += string(p[:n])
		}
		s.done = err == io.EOF
		if n == 0 || err != nil {
			break
		}
	}
	for !s.echoed && (len(s.body) > 0 || s.head != nil || s.done || s.want != "") {
		n := min(len(s.body), 1+r.IntN(20000))
		last := n == len(s.body) && (s.done || s.want != "")
		if n == 0 && s.head == nil && !last {
			return
		}
		if err := s.Put(s.head, []byte(s.body[:n]), last); err != nil {
			if !errors.Is(err, flow.ErrFull) {
				s.echoed = true
			}
			return
		}
		s.head, s.body, s.echoed = nil, s.body[n:], last
	}
}

type simAcceptor struct {
	w     *simWorld
	conns []*simConn
}

func (a *simAcceptor) Opened(c *myriad.Conn) {
	h := &simConn{w: a.w}
	h.Init(&a.w.cfg[0], h)
	a.conns = append(a.conns, h)
	c.SetHandler(h, nil)
}
func (*simAcceptor) Received(*myriad.Conn, []byte) {}
func (*simAcceptor) Closed(*myriad.Conn, error)    {}

// simulate runs one world: requests of all sizes over a few connections, some of them cancelled,
// with faults of the network unless the world is lossless, and a shutdown at the end or before.
func simulateMux(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	o := []sim.Options{sim.Lossless(), {}, {Reset: 0.5}, {SmallBuffers: 0.9, ShortSend: 0.9, Split: 0.9, Reset: -1,
		Accept: -1, Dial: -1}}[seed%4]
	w := &simWorld{World: sim.New(seed, o), t: t, rng: rng}
	for i := range w.cfg {
		w.cfg[i] = Config{Client: i == 1, Now: w.Now, Streams: 1 + rng.IntN(20), Window: 1 + rng.IntN(70000),
			Outbox: 1 + rng.IntN(30000), Ahead: 1 + rng.IntN(40000), Counters: new(Counters)}
		w.cfg[i].Take(nil)
	}
	e, err := myriad.Start(myriad.Config{System: w.World, Loops: 1, Logger: quiet, LingerTimeout: time.Hour,
		ReadBuffer: 1 + rng.IntN(20000)})
	if err != nil {
		t.Fatal(err)
	}
	a := &simAcceptor{w: w}
	ln, err := e.Listen("tcp", "127.0.0.1:0", a)
	if err != nil {
		t.Fatal(err)
	}
	var clients []*simConn
	for range 1 + rng.IntN(3) {
		c := &simConn{w: w}
		c.Init(&w.cfg[1], c)
		if _, err := e.Dial(context.Background(), "tcp", ln.Addr().String(), c); err != nil {
			continue
		}
		clients = append(clients, c)
	}
	lossless := o.Reset < 0
	early := rng.IntN(3) == 0
	for range rng.IntN(40) {
		w.RunFor(time.Duration(rng.Int64N(int64(100 * time.Millisecond))))
		if len(clients) == 0 {
			break
		}
		c := clients[rng.IntN(len(clients))]
		if c.Conn.c != nil && c.gone == 0 {
			c.Conn.c.Loop().Do(func() { c.act1(rng) })
		}
	}
	if !early {
		w.RunFor(time.Hour)
	}
	if err := e.Shutdown(context.Background()); err != nil {
		t.Errorf("seed %d: Shutdown: %v", seed, err)
	}
	w.Run()
	w.Check(t)
	for _, c := range append(clients, a.conns...) {
		c.check(seed, lossless && !early)
	}
}

// act1 opens a stream, or cancels one.
func (c *simConn) act1(rng *rand.Rand) {
	if len(c.streams) > 0 && rng.IntN(5) == 0 {
		s := c.streams[rng.IntN(len(c.streams))]
		s.want = "cancelled"
		s.Cancel(h2.Cancel)
		return
	}
	s := c.newEnd()
	s.want = fmt.Sprint(len(c.streams), strings.Repeat("x", rng.IntN(1<<rng.IntN(18))))
	s.body = s.want
	s.head = pairs(":method", "POST", ":scheme", "http", ":authority", "h", ":path", "/")
	if err := c.Open(&s.Stream); err != nil {
		c.streams = c.streams[:len(c.streams)-1]
		return
	}
	s.pump()
}

// check holds each stream against what it must have got: all of it, if it has ended in order.
func (c *simConn) check(seed uint64, all bool) {
	t := c.w.t
	if c.gone != 1 {
		t.Errorf("seed %d: Gone was called %d times", seed, c.gone)
	}
	if c.act != nil || c.asks.last != nil && all {
		t.Errorf("seed %d: the connection has kept something", seed)
	}
	for i, s := range c.streams {
		if c.cfg.Client && s.err == nil {
			simWhole++
			simBytes += s.got.Len()
		} else if c.cfg.Client {
			simErrors++
		}
		switch {
		case s.ends != 1:
			t.Errorf("seed %d, stream %d of %d: ended %d times", seed, s.id, i, s.ends)
		case !c.cfg.Client || s.want == "cancelled":
		case s.err == nil && s.got.String() != s.want:
			t.Errorf("seed %d, stream %d: %d bytes, want %d", seed, s.id, s.got.Len(), len(s.want))
		case s.err != nil && all && !refused(s.err):
			t.Errorf("seed %d, stream %d: %v", seed, s.id, s.err)
		}
	}
}

// refused: before the client knows how many streams it may open, it may open too many.
func refused(err error) bool {
	e, ok := errors.AsType[*h2.Error](err)
	return ok && e.Code == h2.RefusedStream
}

func TestSimulated(t *testing.T) {
	seeds := uint64(60)
	if !testing.Short() {
		seeds = soak.Size(t, uint64(100), 1000)
	}
	for seed := range seeds {
		if simulateMux(t, seed); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if simWhole < 100 || simBytes < 1<<20 || simErrors < 20 {
		t.Errorf("the worlds are too quiet: %d streams with %d bytes, %d errors", simWhole, simBytes, simErrors)
	}
	t.Logf("%d streams with %d bytes, %d errors", simWhole, simBytes, simErrors)
}

// What the simulations have seen: streams that ended in order, with bytes, and by an error.
var simWhole, simBytes, simErrors int
