package websocket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/web"
)

// With every fault on, whatever happens to a connection or a stream, callbacks come in order: open,
// a prefix of what was sent, one end.
func TestHTTP2Chaos(t *testing.T) {
	ways := [4]web.Dispatch{web.DispatchPool, web.DispatchInline, web.DispatchAuto, quickly}
	for seed := range uint64(40) {
		byConn := map[*Conn]*[]string{}
		o := &Options{Dispatch: ways[seed%4], PingInterval: quiet}
		note := func(c *Conn, s string) {
			if byConn[c] == nil {
				byConn[c] = new([]string)
			}
			*byConn[c] = append(*byConn[c], s)
		}
		o.OnOpen = func(c *Conn) { note(c, "open") }
		o.OnMessage = func(c *Conn, op Op, p []byte) { note(c, string(p)); _ = c.Write(op, p) }
		o.OnClose = func(c *Conn, err error) { note(c, "end") }
		w := newMuxWorld(t, seed, sim.Options{}, o)
		var clients []*muxClient
		for i := range 4 {
			c := w.dial(4 << 10)
			for id := uint32(1); id < 9; id += 2 {
				c.open(id)
			}
			for n := range 60 {
				for id := uint32(1); id < 9; id += 2 {
					if id != 5 || n < 30 {
						c.frames(id, clientFrame(true, OpText, fmt.Sprint(n)), 3, id == 3 && n == 59)
					} else if n == 30 {
						c.Write(h2.AppendReset(nil, 5, h2.Cancel))
					}
				}
			}
			clients = append(clients, c)
			if i == 3 {
				c.Reset()
			}
		}
		w.RunFor(1e9)
		for _, c := range clients {
			c.Close()
		}
		w.Run()
		for _, heard := range byConn {
			checkOrder(t, seed, *heard)
		}
		w.stop()
	}
}

// What an extended CONNECT must be like, and the answer if it is not. The connection goes on.
func TestHTTP2Handshake(t *testing.T) {
	run := func(name string, fields []string, end bool, want string) {
		o := &Options{PingInterval: quiet, Subprotocols: []string{"a"}, Compression: Compression{Enabled: true,
			Threshold: -1}}
		w := newMuxWorld(t, 1, sim.Calm(), o)
		p := w.dial(plenty)
		p.request(1, end, fields...)
		p.open(3)
		w.Settle()
		s := p.stream(1)
		refused := !strings.HasPrefix(want, ":status=200")
		if got := s.head + s.end; !strings.HasPrefix(got, want) || refused != (s.end != "") {
			t.Errorf("%s: got %q and the end %q, want %q", name, got, s.end, want)
		}
		if got := p.stream(3).head; !strings.HasPrefix(got, ":status=200") {
			t.Errorf("%s: the next stream got %q", name, got)
		}
		w.stop(p)
	}
	var name string
	var fields []string
	end := false
	eachLine(t, "connect.txt", func(word string, p *script) {
		switch word {
		case "case":
			name, fields, end = p.all(), slices.Clone(connectFields), false
		case "only":
			fields = strings.Fields(strings.ReplaceAll(p.all(), `""`, "\x00"))
			for i := range fields {
				fields[i] = strings.Trim(fields[i], "\x00")
			}
		case "field":
			field := p.word()
			at := slices.Index(fields, field)
			if at < 0 {
				at = len(fields)
				fields = append(fields, field, "")
			}
			if fields[at+1] = p.all(); fields[at+1] == "" {
				fields = slices.Delete(fields, at, at+2)
			}
		case "end":
			end = true
		case "answer":
			run(name, fields, end, p.all())
		default:
			p.wrong()
		}
	})
}

// held is one WebSocket over HTTP/2 with a client that reads as much as its window allows.
type muxHeld struct {
	*muxWorld
	c     *muxClient
	conn  *Conn
	ended error
	ends  int
}

func holdMux(t *testing.T, window int, o *Options) *muxHeld {
	t.Helper()
	h := new(muxHeld)
	o.OnClose = func(_ *Conn, err error) { h.ended, h.ends = err, h.ends+1 }
	if o.PingInterval == 0 {
		o.PingInterval = quiet
	}
	h.muxWorld = newMuxWorld(t, 1, sim.Calm(), o)
	h.c = h.dial(window)
	h.c.open(1)
	h.Settle()
	if len(h.conns) != 1 {
		t.Fatalf("no connection: %+v", h.c.stream(1))
	}
	h.conn = h.conns[0]
	return h
}

// numbers lets the client read everything, and returns the numbers of what has come.
func (h *muxHeld) numbers() []int {
	h.c.Write(h2.AppendWindowUpdate(nil, 1, plenty))
	h.Settle()
	return numbersIn(h.c.lines(1))
}

// A Write that waits for room goes on when the client's window opens, and gives up in time.
func TestHTTP2WriteWaits(t *testing.T) {
	h := holdMux(t, 1000, &Options{WriteLimit: 4 << 10, WriteTimeout: 3 * time.Second, OnOpen: func(c *Conn) {}})
	done := 0
	h.World.Go(func() {
		for i := range 100 {
			noError(t, h.conn.Write(OpText, numbered(i)))
			done++
		}
	})
	h.RunFor(2 * time.Second)
	if done < 8 || done > 12 {
		t.Errorf("%d writes have returned", done)
	}
	if got := h.numbers(); done != 100 || !slices.Equal(got, upTo(100)) {
		t.Errorf("%d writes have returned, %d messages have come", done, len(got))
	}
	h.stop(h.c)
}

// Members of a group on streams of one connection: the one whose window is closed is removed by its
// policy, and the others get everything in order.
func TestHTTP2Group(t *testing.T) {
	const messages = 300
	for policy := range outbox.Policies {
		var group Group
		o := &Options{PingInterval: quiet, Overflow: policy, WriteLimit: 8 << 10, WriteTimeout: 2 * time.Second}
		o.OnOpen = func(c *Conn) {
			if _, err := group.Join(c); err != nil {
				t.Error(err)
			}
		}
		var ended []error
		o.OnClose = func(_ *Conn, err error) { ended = append(ended, err) }
		w := newMuxWorld(t, 1, sim.Calm(), o)
		c := w.dial(0)
		for id := uint32(1); id < 9; id += 2 {
			c.open(id)
			if id != 3 {
				c.Write(h2.AppendWindowUpdate(nil, id, plenty))
			}
		}
		w.Settle()
		var want []string
		for i := range messages {
			must(t, group.Send(OpText, numbered(i)))
			want = append(want, line(OpText, string(numbered(i))))
			if i%50 == 0 {
				w.Settle() // else many in one turn
			}
		}
		w.RunFor(4 * time.Second)
		for id := uint32(1); id < 9; id += 2 {
			if got := c.lines(id); id != 3 && !slices.Equal(got, want) {
				t.Errorf("%v: stream %d has got %d messages", policy, id, len(got))
			}
		}
		dropping := policy == OverflowDropNewest || policy.Queues()
		left := map[bool]int{true: 4, false: 3}[dropping]
		if group.Len() != left || o.Stats().Dropped > 0 != dropping {
			t.Errorf("%v: %d members are left, %+v", policy, group.Len(), o.Stats())
		}
		w.stop(c)
		if len(ended) != 4 {
			t.Errorf("%v: %d ends", policy, len(ended))
		}
	}
}

// A peer that does not answer pings is given up: its stream is reset, and its connection goes on.
func TestHTTP2SilentPeer(t *testing.T) {
	h := holdMux(t, plenty, &Options{PingInterval: 10 * time.Second, PongTimeout: 5 * time.Second})
	h.RunFor(11 * time.Second)
	if got := h.c.lines(1); !slices.Equal(got, lines(`ping ""`)) {
		t.Errorf("after the interval: %q", got)
	}
	h.c.frames(1, clientFrame(true, OpPong, ""), 100, false)
	h.RunFor(16 * time.Second)
	if !errors.Is(h.ended, os.ErrDeadlineExceeded) || h.c.stream(1).end != "CANCEL" || h.c.goneFor != "" {
		t.Errorf("ended by %v, the stream by %q", h.ended, h.c.stream(1).end)
	}
	h.c.open(3)
	h.Settle()
	if !strings.HasPrefix(h.c.stream(3).head, ":status=200") {
		t.Errorf("the next stream: %+v", h.c.stream(3))
	}
	h.stop(h.c)
}

// The closing handshake, and clients that leave a part of it out.
func TestHTTP2Close(t *testing.T) {
	for name, c := range map[string]struct {
		client func(h *muxHeld)
		end    string
		want   func(err error) bool
	}{
		"answered": {func(h *muxHeld) {
			h.c.frames(1, clientFrame(true, OpClose, closeWith(1000, "")), 100, true)
		}, "END_STREAM", func(err error) bool { return CloseStatus(err) == StatusNormalClosure }},
		"without END_STREAM": {func(h *muxHeld) {
			h.c.frames(1, clientFrame(true, OpClose, closeWith(1000, "")), 100, false)
		}, "END_STREAMCANCEL", func(err error) bool { return CloseStatus(err) == StatusNormalClosure }},
		"not answered": {func(*muxHeld) {}, "END_STREAMCANCEL",
			func(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }},
		"END_STREAM alone": {func(h *muxHeld) { h.c.frames(1, "", 100, true) }, "END_STREAM",
			func(err error) bool { return errors.Is(err, errNoClose) }},
		"reset": {func(h *muxHeld) { h.c.Write(h2.AppendReset(nil, 1, h2.Cancel)) }, "",
			func(err error) bool { return err != nil && strings.Contains(err.Error(), "reset by the peer") }},
	} {
		h := holdMux(t, plenty, &Options{CloseTimeout: 3 * time.Second})
		noError(t, h.conn.Write(OpText, []byte("last")))
		noError(t, h.conn.Close(StatusNormalClosure, ""))
		h.Settle()
		if got, want := h.c.lines(1), lines(`text "last"`, line(OpClose, closeWith(1000, ""))); !slices.Equal(got,
			want) {
			t.Errorf("%s: the client has read %q", name, got)
		}
		c.client(h)
		h.RunFor(20 * time.Second)
		if h.ends != 1 || !c.want(h.ended) || h.c.stream(1).end != c.end {
			t.Errorf("%s: %d ends, by %v, of the stream by %q", name, h.ends, h.ended, h.c.stream(1).end)
		}
		if err := h.conn.Write(OpText, nil); err == nil {
			t.Errorf("%s: Write behind the end", name)
		}
		h.stop(h.c)
	}
}

// The server's Shutdown closes WebSockets of HTTP/2 in order and waits for them, because their
// connections are its own; so does the engine's.
func TestHTTP2Shutdown(t *testing.T) {
	for _, of := range []string{"server", "engine"} {
		h := holdMux(t, plenty, &Options{CloseTimeout: 3 * time.Second})
		var err error
		down := false
		h.World.Go(func() {
			if of == "server" {
				err = h.s.Shutdown(context.Background())
			} else {
				err = h.e.Shutdown(context.Background())
			}
			down = true
		})
		h.RunFor(time.Second)
		if got, want := h.c.lines(1), lines(line(OpClose, closeWith(1001, "shutting down"))); !slices.Equal(got,
			want) {
			t.Errorf("%s: the client has read %q", of, got)
		}
		if down {
			t.Errorf("%s: Shutdown does not wait", of)
		}
		h.c.frames(1, clientFrame(true, OpClose, closeWith(1001, "")), 100, true)
		h.c.CloseWrite()
		h.RunFor(20 * time.Second)
		if !down || err != nil || CloseStatus(h.ended) != StatusGoingAway || !h.c.Ended() ||
			h.c.goneFor != "NO_ERROR" {
			t.Errorf("%s: down %v, %v; ended by %v, GOAWAY %q", of, down, err, h.ended, h.c.goneFor)
		}
		h.stop(h.c)
	}
}

// A client that sends faster than callbacks take is stopped by its window, and another stream of
// the connection is not.
func TestHTTP2SlowCallbacks(t *testing.T) {
	var got [2]int
	h := (*muxWorld)(nil)
	o := &Options{Dispatch: web.DispatchPool, PingInterval: quiet, OnMessage: func(c *Conn, _ Op, p []byte) {
		if p[0] == 's' {
			h.NewParker().ParkFor(100 * time.Millisecond)
			got[0]++
			return
		}
		got[1]++
	}}
	h = newMuxWorld(t, 1, sim.Calm(), o)
	c := h.dial(plenty)
	c.open(1)
	c.open(3)
	slow := clientFrame(true, OpBinary, "s"+strings.Repeat("x", 999))
	for range 60 { // all that the window takes
		c.frames(1, slow, 1<<14, false)
	}
	for range 300 {
		c.frames(3, clientFrame(true, OpBinary, "f"), 100, false)
	}
	h.RunFor(time.Second)
	if got[1] != 300 || got[0] < 5 || got[0] > 12 {
		t.Errorf("slow and fast have got %v", got)
	}
	h.RunFor(20 * time.Second)
	if got[0] != 60 {
		t.Errorf("slow has got %d", got[0])
	}
	h.stop(c)
}

// Messages that are compressed on one side are so on the other.
func TestHTTP2Compression(t *testing.T) {
	o, heard := recorded(&Options{OnMessage: echoBack, Compression: Compression{Enabled: true, Threshold: -1}})
	h := newMuxWorld(t, 1, sim.Calm(), o)
	o.PingInterval = quiet
	c := h.dial(plenty)
	c.open(1, "sec-websocket-extensions", "permessage-deflate")
	text := strings.Repeat("again and ", 100)
	d := deflate([]byte(text), nil, 1, maxWindowBits)
	frame := appendFrame(nil, frameHeader{fin: true, rsv1: true, op: OpText, masked: true}, d.out)
	d.put()
	c.frames(1, string(frame), 10, false)
	h.RunFor(time.Second)
	if got := heard.all(); !slices.Equal(got, lines("open", line(OpText, text))) {
		t.Errorf("heard %q", got)
	}
	if p := c.stream(1).bytes; len(p) < 10 || len(p) > 100 || p[0] != 0xc1 {
		t.Errorf("the echo has %d bytes", len(p))
	} else if b, err := inflate(p[2:], nil, 1<<20); err != nil || !bytes.Equal(b.Bytes(), []byte(text)) {
		t.Errorf("the echo is not the message: %v", err)
	} else {
		b.Release()
	}
	h.stop(c)
}

// A muxWorld is a web.Server on the simulator that accepts WebSockets over HTTP/2.
type muxWorld struct {
	*world
	s     *web.Server
	conns []*Conn
	addr  func() net.Addr
}

func newMuxWorld(t *testing.T, seed uint64, faults sim.Options, o *Options) *muxWorld {
	t.Helper()
	w := &muxWorld{world: &world{World: sim.New(seed, faults), t: t}}
	var err error
	if w.e, err = myriad.Start(myriad.Config{System: w.World, Loops: 2}); err != nil {
		t.Fatal(err)
	}
	if o.Dispatch == quickly {
		o.Dispatch = web.DispatchAuto
		learn(t, o)
	}
	o.Engine = w.e
	w.s = &web.Server{Engine: w.e, Tunnels: true, Protocols: new(http.Protocols),
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("X-Own", "1")
			rw.Header().Set("Content-Length", "1") // of no answer to CONNECT
			if c, err := Accept(rw, r, o); err == nil {
				w.conns = append(w.conns, c)
			}
		})}
	w.s.Protocols.SetUnencryptedHTTP2(true)
	ln, err := w.s.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w.addr = func() net.Addr { return ln.Addr() }
	return w
}

// A muxClient speaks in frames of HTTP/2. It shows each stream as what its peer has sent on it.
type muxClient struct {
	*sim.Peer
	t       *testing.T
	in      []byte
	dec     hpack.Decoder
	streams map[uint32]*muxStream
	goneFor string // GOAWAY
}

type muxStream struct {
	head  string // of the answer
	bytes []byte
	end   string // how it has ended: END_STREAM, or the code of RST_STREAM
}

const plenty = 1 << 30

// dial connects. window is that of each stream, for what the server sends.
func (w *muxWorld) dial(window int) *muxClient {
	c := &muxClient{Peer: w.Dial(w.addr()), t: w.t, streams: map[uint32]*muxStream{}}
	c.dec.Reset()
	p := append([]byte(h2.Preface), h2.AppendSettings(nil, h2.Setting{ID: h2.InitialWindowSize,
		Value: uint32(window)})...)
	c.Write(h2.AppendWindowUpdate(h2.AppendSettingsAck(p), 0, plenty))
	return c
}

var connectFields = []string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "https",
	":authority", "example.com", ":path", "/chat", "sec-websocket-version", "13"}

func (c *muxClient) open(stream uint32, more ...string) {
	c.request(stream, false, append(slices.Clone(connectFields), more...)...)
}

func (c *muxClient) request(stream uint32, end bool, fields ...string) {
	var block []byte
	for i := 0; i < len(fields); i += 2 {
		block = hpack.AppendField(block, []byte(fields[i]), []byte(fields[i+1]), false)
	}
	c.Write(h2.AppendHeaders(nil, stream, block, end, h2.MinFrameSize))
}

// frames sends WebSocket frames in DATA of at most size bytes.
func (c *muxClient) frames(stream uint32, wire string, size int, end bool) {
	for {
		n, flags := min(len(wire), size), uint8(0)
		if end && n == len(wire) {
			flags = h2.EndStream
		}
		c.Write(append(h2.AppendHeader(nil, n, h2.Data, flags, stream), wire[:n]...))
		if wire = wire[n:]; wire == "" {
			return
		}
	}
}

func (c *muxClient) stream(id uint32) *muxStream {
	c.t.Helper()
	c.in = append(c.in, c.TakeReceived()...)
	for {
		n, f, err := h2.ParseFrame(c.in, h2.MaxFrameSize)
		if err != nil {
			c.t.Fatalf("a wrong frame: %v", err)
		}
		if n == 0 {
			break
		}
		c.take(&f)
		c.in = c.in[n:]
	}
	if s := c.streams[id]; s != nil {
		return s
	}
	return new(muxStream)
}

func (c *muxClient) take(f *h2.Frame) {
	s := c.streams[f.Stream]
	if s == nil {
		s = new(muxStream)
		c.streams[f.Stream] = s
	}
	switch f.Type {
	case h2.Headers:
		fields, _, err := c.dec.Decode(nil, f.Data, 1<<20)
		if err != nil {
			c.t.Errorf("a wrong block: %v", err)
		}
		for _, field := range fields {
			if field.Name != "date" {
				s.head += field.Name + "=" + field.Value + " "
			}
		}
	case h2.Data:
		s.bytes = append(s.bytes, f.Data...)
	case h2.ResetStream:
		s.end += fmt.Sprint(h2.Code(f.Value))
	case h2.GoAway:
		c.goneFor = fmt.Sprint(h2.Code(f.Value))
	}
	if f.Has(h2.EndStream) && (f.Type == h2.Data || f.Type == h2.Headers) {
		s.end += "END_STREAM"
	}
}

func (c *muxClient) lines(id uint32) []string {
	return transcript(c.t, &readRules{limit: 1 << 24}, c.stream(id).bytes)
}

// stop shuts the server down, which has no open streams.
func (w *muxWorld) stop(clients ...*muxClient) {
	w.t.Helper()
	for _, c := range clients {
		c.Close()
	}
	w.Run()
	if err := w.s.Shutdown(context.Background()); err != nil {
		w.t.Errorf("seed %d: %v", w.Seed(), err)
	}
	w.world.stop()
}
