package websocket

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
	"github.com/myriad-go/myriad/web"
)

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
