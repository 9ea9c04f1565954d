package websocket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
)

// shapes are the frames that a server has sent: opcode, RSV1, length, FIN.
func shapes(t *testing.T, p *sim.Peer) (all []string) {
	t.Helper()
	_, frames, _ := bytes.Cut(p.Received(), []byte("\r\n\r\n"))
	for len(frames) > 0 {
		n, h, err := parseHeader(frames, false, true)
		if err != nil || n == 0 || len(frames) < n+int(h.length) {
			t.Fatalf("behind %q: %v", all, err)
		}
		all = append(all, strings.TrimSpace(fmt.Sprintf("%d %v %d %v", h.op, h.rsv1, h.length, h.fin)))
		frames = frames[n+int(h.length):]
	}
	return all
}

// openSim has one connection on the simulator, and returns both ends.
func openSim(t *testing.T, o *Options, cfg myriad.Config) (w *world, c *Conn, p *client) {
	t.Helper()
	o.PingInterval = quiet
	o.OnOpen = func(opened *Conn) { c = opened }
	w = newWorld(t, 1, sim.Calm(), cfg, Handler(o))
	p = w.client(sampleRequest)
	w.RunFor(time.Second)
	return w, c, p
}

func TestNextWriterFrames(t *testing.T) {
	const k = partBytes
	for size, want := range map[int]string{
		0:         "1 false 0 true",
		100:       "1 false 100 true",
		k:         fmt.Sprintf("1 false %d true", k),
		k + 1:     fmt.Sprintf("1 false %d false,0 false 1 true", k),
		3*k + 100: fmt.Sprintf("1 false %d false,0 false %d false,0 false %d false,0 false 100 true", k, k, k),
	} {
		for _, step := range []int{1000, 40_000, 1 << 20} {
			w, c, p := openSim(t, &Options{WriteLimit: 1 << 20}, myriad.Config{})
			whole := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
			m, err := c.NextWriter(OpText)
			must(t, err)
			for rest := whole; len(rest) > 0; rest = rest[min(step, len(rest)):] {
				if n, err := m.Write(rest[:min(step, len(rest))]); n != min(step, len(rest)) || err != nil {
					t.Fatalf("Write took %d, %v", n, err)
				}
			}
			must(t, m.Close())
			for _, err := range []error{m.Close(), func() error { _, err := m.Write([]byte("x")); return err }()} {
				if !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("behind Close: %v", err)
				}
			}
			w.RunFor(time.Second)
			if got := strings.Join(shapes(t, p.Peer), ","); got != want {
				t.Errorf("%d bytes by %d: the frames are %s, want %s", size, step, got, want)
			}
			if got := p.lines(t); len(got) != 1 || got[0] != line(OpText, string(whole)) {
				t.Errorf("%d bytes by %d: the peer read %.100q", size, step, got)
			}
			w.finish(p)
		}
	}
}

// What is written while a message in parts is under way, by each policy and in a group, comes
// behind it or as the policy says; a ping passes.
func TestNextWriterExcludesOthers(t *testing.T) {
	for policy, want := range map[Overflow]struct {
		err      error
		messages string // behind the one in parts
		drained  int
	}{
		OverflowFail:       {err: myriad.ErrFull, messages: "group", drained: 1},
		OverflowDropNewest: {messages: "group", drained: 1},
		OverflowDropOldest: {messages: "write group"},
		OverflowLatest:     {messages: "group", drained: 1},
	} {
		drained := 0
		w, c, p := openSim(t, &Options{Overflow: policy, WriteLimit: 1 << 20, OnDrained: func(*Conn) { drained++ }},
			myriad.Config{})
		var g Group
		if _, err := g.Join(c); err != nil {
			t.Fatal(err)
		}
		m, err := c.NextWriter(OpBinary)
		must(t, err)
		if _, err := m.Write(make([]byte, partBytes+1)); err != nil {
			t.Fatal(err)
		}
		if err := c.Write(OpText, []byte("write")); !errors.Is(err, want.err) {
			t.Errorf("%v: Write beside a message in parts: %v, want %v", policy, err, want.err)
		}
		noError(t, g.Send(OpText, []byte("group")))
		noError(t, c.Ping([]byte("?")))
		w.RunFor(time.Second)
		must(t, m.Close())
		w.RunFor(time.Second)
		lines := []string{`ping "?"`, line(OpBinary, string(make([]byte, partBytes+1)))}
		for text := range strings.FieldsSeq(want.messages) {
			lines = append(lines, line(OpText, text))
		}
		if got := p.lines(t); fmt.Sprint(got) != fmt.Sprint(lines) {
			t.Errorf("%v: the peer read %.200q behind the message, want %.200q", policy, got[min(len(got), 2):],
				lines[2:])
		}
		if drained != want.drained || g.Len() != 1 {
			t.Errorf("%v: OnDrained was called %d times, want %d; %d members", policy, drained, want.drained, g.Len())
		}
		w.finish(p)
	}
}

// A close frame ends a message in parts, and what waited behind it is not put inside of it.
func TestNextWriterAndClose(t *testing.T) {
	w, c, p := openSim(t, &Options{Overflow: OverflowDropOldest}, myriad.Config{})
	m, err := c.NextWriter(OpBinary)
	must(t, err)
	if _, err := m.Write(make([]byte, partBytes+1)); err != nil {
		t.Fatal(err)
	}
	must(t, errors.Join(c.Write(OpText, []byte("waits")), c.Close(StatusNormalClosure, "")))
	if err := m.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Close of the message on a closing connection: %v", err)
	}
	if _, err := c.NextWriter(OpBinary); !errors.Is(err, net.ErrClosed) {
		t.Errorf("NextWriter on a closing connection: %v", err)
	}
	w.RunFor(time.Second)
	if got, want := strings.Join(shapes(t, p.Peer), ","), fmt.Sprintf("2 false %d false,8 false 2 true",
		partBytes); got != want {
		t.Errorf("the frames are %s, want %s", got, want)
	}
	w.finish(p)
}

func TestNextWriterRefusesOps(t *testing.T) {
	w, c, p := openSim(t, &Options{}, myriad.Config{})
	if _, err := c.NextWriter(OpPing); err == nil {
		t.Error("a ping in parts was accepted")
	}
	w.finish(p)
}

// Before the connection has arrived at its loop, parts wait as messages do.
func TestNextWriterEarly(t *testing.T) {
	s, err := (&Options{PingInterval: quiet}).settings()
	must(t, err)
	c := newConn(s, deflateTerms{}, 0)
	m, err := c.NextWriter(OpBinary)
	must(t, err)
	if _, err := m.Write(make([]byte, 2*partBytes)); err != nil {
		t.Fatal(err)
	}
	must(t, errors.Join(m.Close(), c.Write(OpText, []byte("next"))))
	w := newWorld(t, 1, sim.Calm(), myriad.Config{}, upgradeTo{c})
	p := w.client("")
	w.RunFor(time.Second)
	got := serverLines(t, append([]byte("HTTP/1.1 101 \r\n\r\n"), p.Received()...))
	if want := []string{line(OpBinary, string(make([]byte, 2*partBytes))),
		`text "next"`}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the peer read %.100q", got)
	}
	w.finish(p)
}

// A peer that does not read ends the connection when a part has waited for WriteTimeout; on a loop
// that must not wait, at once.
func TestNextWriterToSlowPeers(t *testing.T) {
	e := startEngine(t, myriad.Config{})
	for name, d := range map[string]web.Dispatch{"pool": web.DispatchPool, "inline": web.DispatchInline} {
		t.Run(name, func(t *testing.T) {
			wrote, ended := make(chan error, 1), make(chan error, 1)
			o := &Options{Workers: startPool(t), Dispatch: d, PingInterval: quiet,
				WriteTimeout: 50 * time.Millisecond,
				CloseTimeout: 50 * time.Millisecond,
				WriteLimit:   1 << 16, OnClose: func(_ *Conn, err error) { ended <- err },
				OnMessage: func(c *Conn, _ Op, _ []byte) {
					m, err := c.NextWriter(OpBinary)
					for p := make([]byte, 1<<20); err == nil; {
						_, err = m.Write(p)
					}
					wrote <- err
				}}
			p := dialRaw(t, listen(t, e, Handler(o))).open()
			p.write(clientFrame(true, OpText, "go"))
			err := <-wrote
			p.Close()
			if end := <-ended; !errors.Is(err, myriad.ErrFull) || CloseStatus(end) == 0 ||
				!errors.Is(end, myriad.ErrFull) {
				t.Errorf("Write failed with %v, the connection with %v", err, end)
			}
		})
	}
}

// Messages in parts and whole ones arrive in order and unharmed, both ways, with every kind of
// compression.
func TestNextWriterCompressed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	large := 2_000_000
	if testing.Short() {
		large = 200_000 // the race detector looks at each byte
	}
	words := strings.Fields("the quick brown fox jumps over a lazy dog while it rains and snows")
	text := func(n int) string {
		var b strings.Builder
		for b.Len() < n {
			fmt.Fprintf(&b, "%s %d ", words[r.IntN(len(words))], r.Uint64())
		}
		return b.String()[:n]
	}
	for name, k := range map[string]Compression{
		"off": {}, "no window": {Enabled: true}, "windows": {Enabled: true, WriteWindowBits: 15, ReadWindowBits: 15},
		"small windows": {Enabled: true, WriteWindowBits: 9, ReadWindowBits: 9},
	} {
		t.Run(name, func(t *testing.T) {
			e := startEngine(t, myriad.Config{})
			o := &Options{Engine: e, Workers: startPool(t), Compression: k, MaxMessage: 4 << 20,
				WriteTimeout: time.Hour,
				OnMessage: func(c *Conn, op Op, p []byte) {
					if err := writeParts(c, op, p); err != nil { // echoed in parts
						t.Error(err)
					}
				}}
			ctx, cancel := context.WithTimeout(context.Background(), hangs)
			defer cancel()
			c, _, err := Dial(ctx, "ws://"+listen(t, e, Handler(o)),
				&DialOptions{Options: Options{Engine: e, Compression: k, Pull: true, MaxMessage: 4 << 20,
					WriteTimeout: time.Hour}})
			must(t, err)
			defer c.Abort(nil)
			for i, n := range []int{10, 100_000, 1000, 500_000, partBytes, partBytes + 1, large, 0, 40_000} {
				want := text(n)
				if i%2 == 0 {
					err = writeParts(c, OpText, []byte(want))
				} else {
					err = c.WriteContext(ctx, OpText, []byte(want))
				}
				must(t, err)
				if _, got, err := c.Read(ctx); err != nil || string(got) != want {
					t.Fatalf("%d bytes came back as %d, %v", n, len(got), err)
				}
			}
		})
	}
}

// writeParts writes p in pieces of odd sizes.
func writeParts(c *Conn, op Op, p []byte) error {
	m, err := c.NextWriter(op)
	if err != nil {
		return err
	}
	for n := 7; len(p) > 0; n = 3*n + 1 {
		n = min(n, len(p))
		if _, err := m.Write(p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return m.Close()
}

// Goroutines with messages in parts and whole ones take turns.
func TestNextWriterTakesTurns(t *testing.T) {
	const writers, each, size = 4, 20, 3 * partBytes
	e := startEngine(t, myriad.Config{})
	pool := startPool(t)
	o := &Options{Workers: pool, PingInterval: quiet, WriteTimeout: time.Hour, OnOpen: func(c *Conn) {
		for w := range writers {
			pool.TryGo(func() {
				for range each {
					p := bytes.Repeat([]byte{byte('a' + w)}, size)
					write := c.Write
					if w%2 == 0 {
						write = func(op Op, p []byte) error { return writeParts(c, op, p) }
					}
					noError(t, write(OpBinary, p))
				}
			})
		}
	}}
	ctx := t.Context()
	c, _, err := Dial(ctx, "ws://"+listen(t, e, Handler(o)), &DialOptions{Options: Options{Engine: e, Pull: true}})
	must(t, err)
	defer c.Abort(nil)
	counts := map[byte]int{}
	for range writers * each {
		_, p, err := c.Read(ctx)
		if err != nil || len(p) != size || len(bytes.Trim(p, string(p[:1]))) != 0 {
			t.Fatalf("a message of %d bytes, %v", len(p), err)
		}
		counts[p[0]]++
	}
	if len(counts) != writers || counts['a'] != each {
		t.Errorf("%v", counts)
	}
}
