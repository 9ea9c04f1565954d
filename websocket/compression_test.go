package websocket

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
)

const offering = "Connection: Upgrade\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"

func compressingRequest() string {
	return strings.Replace(sampleRequest, "Connection: Upgrade\r\n", offering, 1)
}

// packedFrame is a client's compressed message, in as many frames as pieces.
func packedFrame(op Op, text string, window []byte, pieces int) string {
	d := deflate([]byte(text), window, 1, maxWindowBits)
	defer d.put()
	var wire []byte
	size := len(d.out)/pieces + 1
	for p, first := d.out, true; first || len(p) > 0; first = false {
		piece := p[:min(size, len(p))]
		p = p[len(piece):]
		h := frameHeader{fin: len(p) == 0, rsv1: first, masked: true, key: 0x01020304, op: op}
		if !first {
			h.op = opContinuation
		}
		wire = appendFrame(wire, h, piece)
	}
	return string(wire)
}

// unpackAll reads a server's frames as a client with a window would.
func unpackAll(t *testing.T, wire []byte, keeps bool) (texts []string) {
	t.Helper()
	_, wire, _ = bytes.Cut(wire, []byte("\r\n\r\n"))
	r := &reader{rules: &readRules{compression: true, limit: 1 << 24}}
	var window []byte
	for len(wire) > 0 {
		n, m, err := r.feed(wire)
		must(t, err)
		wire = wire[n:]
		p := m.payload
		if m.compressed {
			p = inflated(t, p, window, 1<<24)
			if keeps {
				window = slide(window, p, 1<<maxWindowBits)
			}
		}
		if m.op == OpText || m.op == OpBinary {
			texts = append(texts, string(p))
		}
		m.release()
	}
	return texts
}

// Echoes of compressed and plain messages, whole and in fragments, in unkind worlds, with and
// without windows.
func TestCompressedSessions(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d web.Dispatch) {
		for name, k := range map[string]Compression{
			"no windows": {Enabled: true, Threshold: -1},
			"windows":    {Enabled: true, Threshold: 100, WriteWindowBits: 15, ReadWindowBits: 15},
		} {
			t.Run(name, func(t *testing.T) {
				for seed := range uint64(10) {
					compressedSession(t, d, k, seed)
				}
			})
		}
	})
}

func compressedSession(t *testing.T, d web.Dispatch, k Compression, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 5))
	wire, want, window := compressingRequest(), []string(nil), []byte(nil)
	for i := range 12 {
		text := string(sampleText(rng, rng.IntN(3000)))
		want = append(want, text)
		if i%4 == 3 {
			wire += clientFrame(true, OpText, text)
			continue
		}
		wire += packedFrame(OpText, text, window, 1+rng.IntN(3))
		if k.ReadWindowBits > 0 {
			window = slide(window, []byte(text), 1<<maxWindowBits)
		}
	}
	wire += clientFrame(true, OpClose, closeWith(1000, ""))
	o := &Options{Dispatch: d, Compression: k, PingInterval: quiet, OnMessage: echoBack, WriteLimit: 1 << 20}
	o, heard := recorded(o)
	w := newWorld(t, seed, sim.Lossless(), myriad.Config{}, Handler(o))
	c := w.client(wire)
	w.Run()
	if got := unpackAll(t, c.Received(), k.WriteWindowBits > 0); !slices.Equal(got, want) {
		t.Fatalf("seed %d: read %d messages of %d, heard %.300q", seed, len(got), len(want), heard.all())
	}
	if len(c.Received()) > 2*len(strings.Join(want, ""))/3 {
		t.Errorf("seed %d: %d bytes for %d of text", seed, len(c.Received()), len(strings.Join(want, "")))
	}
	w.stop()
}

// A connection that has not agreed on windows has nothing of its own for compression, also when it
// has been used.
func TestCompressionCostsAConnectionNothing(t *testing.T) {
	o := &Options{PingInterval: quiet, Compression: Compression{Enabled: true, Threshold: -1}, OnMessage: echoBack}
	var conn *Conn
	o.OnOpen = func(c *Conn) { conn = c }
	w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(o))
	c := w.client(compressingRequest() + packedFrame(OpText, strings.Repeat("echo ", 100), nil, 1))
	w.Settle()
	if !conn.Compressed() || len(unpackAll(t, c.Received(), false)) != 1 {
		t.Fatal("not compressed")
	}
	if conn.cold != nil || conn.backlog != nil || conn.reader.part != nil {
		t.Errorf("cold %+v, backlog %+v, part %+v", conn.cold, conn.backlog, conn.reader.part)
	}
	if other := newConn(conn.settings(), conn.reader.rules.terms, 0); other.reader.rules != conn.reader.rules {
		t.Error("two connections with the same terms do not share them")
	}
	w.finish(c)
}

// Our client and our server, with every pair of wishes, say the same thing to each other.
func TestCompressedEndToEnd(t *testing.T) {
	e := startEngine(t, myriad.Config{})
	pool := startPool(t)
	kinds := []Compression{{}, {Enabled: true, Threshold: -1}, {Enabled: true, WriteWindowBits: 15, ReadWindowBits: 15},
		{Enabled: true, Threshold: -1, WriteWindowBits: 8, ReadWindowBits: 9, Level: 9}}
	for i, server := range kinds {
		o := &Options{Workers: pool, Compression: server, OnMessage: echoBack, Dispatch: web.Dispatch(i % 3)}
		addr := listen(t, e, Handler(o))
		for j, client := range kinds {
			heard := make(chan string, 1)
			d := &DialOptions{}
			d.Engine, d.Workers, d.Compression, d.Dispatch = e, pool, client, web.Dispatch(j%3)
			d.OnMessage = func(_ *Conn, _ Op, p []byte) { heard <- string(p) }
			c, _, err := Dial(context.Background(), "ws://"+addr, d)
			must(t, err)
			if c.Compressed() != (i > 0 && j > 0) {
				t.Errorf("server %d, client %d: compressed %v", i, j, c.Compressed())
			}
			rng := rand.New(rand.NewPCG(uint64(i), uint64(j)))
			for range 30 {
				text := string(sampleText(rng, rng.IntN(6000)))
				must(t, c.Write(OpText, []byte(text)))
				if got := <-heard; got != text {
					t.Fatalf("server %d, client %d: %d bytes came back as other %d", i, j, len(text), len(got))
				}
			}
			_ = c.Close(StatusNormalClosure, "")
		}
	}
}

// One message for connections with all kinds of terms.
func TestPreparedForAllTerms(t *testing.T) {
	e := startEngine(t, myriad.Config{})
	pool := startPool(t)
	var g Group
	joined := make(chan bool)
	o := &Options{Workers: pool, Compression: Compression{Enabled: true, WriteWindowBits: 15, ReadWindowBits: 15},
		OnOpen: func(c *Conn) { _, _ = g.Join(c); joined <- true }}
	addr := listen(t, e, Handler(o))
	var heard []chan string
	for _, k := range []Compression{{}, {Enabled: true}, {Enabled: true, ReadWindowBits: 9},
		{Enabled: true, ReadWindowBits: 15, WriteWindowBits: 15}} {
		ch := make(chan string, 100)
		heard = append(heard, ch)
		d := &DialOptions{}
		d.Engine, d.Workers, d.Compression = e, pool, k
		d.OnMessage = func(_ *Conn, _ Op, p []byte) { ch <- string(p) }
		c, _, err := Dial(context.Background(), "ws://"+addr, d)
		must(t, err)
		defer c.Abort(nil)
		<-joined
	}
	rng := rand.New(rand.NewPCG(8, 8))
	for range 50 {
		text := string(sampleText(rng, rng.IntN(4000)))
		must(t, g.Send(OpText, []byte(text)))
		for i, ch := range heard {
			if got := <-ch; got != text {
				t.Fatalf("connection %d heard %d other bytes", i, len(got))
			}
		}
	}
}
