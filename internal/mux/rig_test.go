package mux

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/flow"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
	"github.com/myriad-go/myriad/internal/httpscript"
)

// A rig is a simulated world with one HTTP/2 connection: ours at one end, and at the other a peer
// that speaks in frames.
type rig struct {
	*sim.World
	t      *testing.T
	cfg    Config
	engine *myriad.Engine
	conn   *testConn
	peer   *sim.Peer
	log    []string // what the owner has been called with
	on     func(s *testStream, h *h2.Head, last bool)
	refuse bool                   // Accept refuses
	code   h2.Code                // that Head returns
	in     httpscript.FrameReader // from our end
	pongs  bool                   // PINGs are answered as they are looked at
}

// A testConn owns the connection.
type testConn struct {
	Conn
	r       *rig
	streams map[uint32]*testStream
	idle    int
	gone    bool
	err     error
}

// A testStream keeps what it gets in an Inbox, which nothing reads unless the test does.
type testStream struct {
	Stream
	r    *rig
	in   flow.Inbox
	head h2.Head
	room int
	got  []byte // all of the body
	err  error  // of Ended
}

func (r *rig) note(format string, args ...any) { r.log = append(r.log, fmt.Sprintf(format, args...)) }

func (h *testConn) Accept(id uint32) *Stream {
	if h.r.refuse {
		return nil
	}
	s := &testStream{r: h.r}
	s.in.Reset(h.cfg.Window, true)
	s.Init(s)
	h.streams[id] = s
	return &s.Stream
}

func (h *testConn) Settings() {}
func (h *testConn) GoAway(last uint32, code h2.Code) {
	h.r.note("goaway %d %v", int32(last), code)
}
func (h *testConn) Idle()          { h.idle++ }
func (h *testConn) Gone(err error) { h.gone, h.err = true, err }

func (s *testStream) Head(h *h2.Head, last bool) h2.Code {
	s.head = *h
	s.head.Fields = slices.Clone(h.Fields)
	s.r.note("%d head %s%.0d %s last %v", s.ID(), h.Method, h.Status, h.Path, last)
	if s.r.on != nil {
		s.r.on(s, h, last)
	}
	return s.r.code
}

func (s *testStream) Data(p []byte, last bool) {
	s.got = append(s.got, p...)
	s.in.Put(p, last)
}
func (s *testStream) Trailers(fields []hpack.Field) {
	s.r.note("%d trailers %v", s.ID(), fields)
	s.in.Put(nil, true)
}
func (s *testStream) Credit() int { return s.in.Credit() }
func (s *testStream) Room()       { s.room++ }
func (s *testStream) Ended(code h2.Code, err error) {
	s.r.note("%d ended %v, error %v", s.ID(), code, err != nil)
	s.err = err
	s.in.Discard()
}

// reply answers a request on the loop and releases the stream.
func reply(s *testStream, body string) {
	if err := s.Put(pairs(":status", "200"), []byte(body), true); err != nil {
		s.r.t.Errorf("reply: %v", err)
	}
	s.Release()
}

func pairs(list ...string) (p []byte) {
	for i := 0; i < len(list); i += 2 {
		p = h2.AppendPair(p, list[i], list[i+1], false)
	}
	return p
}

func block(list ...string) (p []byte) {
	for i := 0; i < len(list); i += 2 {
		p = hpack.AppendField(p, []byte(list[i]), []byte(list[i+1]), false)
	}
	return p
}

var getBlock = block(":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/")

var quiet = slog.New(slog.DiscardHandler)

// whole is a world that cuts and delays bytes, but loses none and is done in a few milliseconds.
var whole = sim.Options{Reset: -1, Accept: -1, Dial: -1, SlowPeer: -1, LateFIN: -1, MaxDelay: time.Millisecond}

// newRig has a peer connect, for a server, or our end connect to the peer, for a client.
func newRig(t *testing.T, cfg Config) *rig {
	t.Helper()
	r := &rig{t: t, cfg: cfg, World: sim.New(1, whole)}
	r.cfg.Now = r.World.Now
	r.cfg.Counters = new(Counters)
	r.cfg.Take(nil)
	e, err := myriad.Start(myriad.Config{System: r.World, Loops: 1, Logger: quiet, LingerTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	r.engine = e
	r.conn = &testConn{r: r, streams: map[uint32]*testStream{}}
	r.conn.Init(&r.cfg, r.conn)
	if cfg.Client {
		ln, err := r.ListenPeer("tcp", "127.0.0.1:0", func(p *sim.Peer) { r.peer = p })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Dial(context.Background(), "tcp", ln.Addr().String(), r.conn); err != nil {
			t.Fatal(err)
		}
		r.settle()
	} else {
		ln, err := e.Listen("tcp", "127.0.0.1:0", r.conn)
		if err != nil {
			t.Fatal(err)
		}
		r.peer = r.Dial(ln.Addr())
	}
	t.Cleanup(r.end)
	return r
}

func (r *rig) end() {
	if !r.peer.Closed() {
		r.peer.Close()
	}
	if err := r.engine.Shutdown(context.Background()); err != nil {
		r.t.Errorf("Shutdown: %v", err)
	}
	r.Run()
	r.Check(r.t)
	if !r.conn.gone {
		r.t.Error("Gone was not called")
	}
}

// settle lets everything happen that happens at once.
func (r *rig) settle() { r.RunFor(200 * time.Millisecond) }

// greet exchanges SETTINGS.
func (r *rig) greet(settings ...h2.Setting) {
	r.t.Helper()
	if !r.cfg.Client {
		r.write([]byte(h2.Preface))
	}
	r.write(h2.AppendSettings(nil, settings...), h2.AppendSettingsAck(nil))
	r.settle()
	r.in.Add(r.peer.TakeReceived())
	if r.cfg.Client && !r.in.Skip(h2.Preface) {
		r.t.Fatal("no preface")
	}
	r.want("SETTINGS")
	r.want("WINDOW_UPDATE 0")
	r.want("SETTINGS ACK")
	r.wantNothing()
}

func (r *rig) write(frames ...[]byte) {
	for _, p := range frames {
		r.peer.Write(p)
	}
}

func frame(t h2.Type, flags uint8, stream uint32, payload string) []byte {
	return append(h2.AppendHeader(nil, len(payload), t, flags, stream), payload...)
}

func headers(stream uint32, block []byte, end bool) []byte {
	return h2.AppendHeaders(nil, stream, block, end, h2.MinFrameSize)
}

func data(stream uint32, p string, end bool) []byte {
	if end {
		return frame(h2.Data, h2.EndStream, stream, p)
	}
	return frame(h2.Data, 0, stream, p)
}

// next describes the next frame that our end has sent: "" if there is none.
func (r *rig) next() string {
	r.t.Helper()
	text, f, err := r.in.Next()
	if err != nil {
		r.t.Fatalf("our end has sent a wrong frame: %v", err)
	}
	if r.pongs && f.Type == h2.Ping && !f.Has(h2.Ack) && text != "" {
		r.write(h2.AppendPing(nil, f.Ping(), true))
	}
	return text
}

// sent lists all frames that our end has sent by now.
func (r *rig) sent() []string {
	r.t.Helper()
	r.settle()
	return r.come()
}

// come lists the frames that have come.
func (r *rig) come() (all []string) {
	r.t.Helper()
	r.in.Add(r.peer.TakeReceived())
	for {
		f := r.next()
		if f == "" {
			return all
		}
		all = append(all, f)
	}
}

// want fails unless the next frame begins like this.
func (r *rig) want(text string) {
	r.t.Helper()
	if r.in.Len() == 0 {
		r.settle()
		r.in.Add(r.peer.TakeReceived())
	}
	if got := r.next(); !strings.HasPrefix(got, text) || got == "" {
		r.t.Errorf("our end has sent %q, want %q", got, text)
	}
}

func (r *rig) wantNothing() {
	r.t.Helper()
	if all := r.sent(); len(all) > 0 {
		r.t.Errorf("our end has sent %q, want nothing", all)
	}
}

// paused reports whether our end reads no more because its control frames wait.
func (r *rig) paused() bool { return r.conn.act != nil && r.conn.act.paused }

func get(extra ...string) []byte {
	return append(append([]byte{}, getBlock...), block(extra...)...)
}

func priorityOf(stream uint32, depends string) []byte {
	return frame(h2.PriorityFrame, 0, stream, depends+"\x10")
}

var okBlock = block(":status", "200")

// request opens a stream at a client.
func (r *rig) request(last bool) *testStream {
	r.t.Helper()
	s := r.openSoon(last)
	r.settle()
	return s
}

// openSoon has the loop open a stream.
func (r *rig) openSoon(last bool) *testStream {
	r.t.Helper()
	s := &testStream{r: r}
	s.in.Reset(r.conn.cfg.Window, true)
	s.Init(s)
	r.doOnLoop(func() {
		if err := r.conn.Open(&s.Stream); err != nil {
			r.t.Errorf("Open: %v", err)
		}
		head := pairs(":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/")
		if err := s.Put(head, nil, last); err != nil {
			r.t.Errorf("Put: %v", err)
		}
	})
	return s
}

// onLoop runs f on the loop.
func (r *rig) onLoop(f func()) {
	r.t.Helper()
	r.doOnLoop(f)
	r.settle()
}

// doOnLoop has f run on the loop.
func (r *rig) doOnLoop(f func()) {
	r.t.Helper()
	if err := r.conn.Conn.c.Loop().Do(f); err != nil {
		r.t.Fatal(err)
	}
}
