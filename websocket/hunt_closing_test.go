package websocket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/web"
)

// After the end every method fails or does nothing, however often it is called, and in whichever
// way the connection has ended.
func TestMethodsBehindTheEnd(t *testing.T) {
	ends := map[string]func(h *held){
		"Close":        func(h *held) { _ = h.conn.Close(1000, ""); h.client.send(OpClose, closeWith(1000, "")) },
		"Abort":        func(h *held) { h.conn.Abort(nil) },
		"peer's close": func(h *held) { h.client.send(OpClose, closeWith(1000, "")) },
		"reset":        func(h *held) { h.client.Reset() },
		"violation":    func(h *held) { h.client.Write([]byte("\xff\xff")) },
		"no answer":    func(h *held) { _ = h.conn.Close(1000, "") },
	}
	for name, end := range ends {
		for _, k := range []Compression{{}, {Enabled: true, Threshold: -1, WriteWindowBits: 15, ReadWindowBits: 15}} {
			var group Group
			h := hold(t, &Options{PingInterval: quiet, Compression: k}, myriad.Config{})
			if _, err := group.Join(h.conn); err != nil {
				t.Fatal(err)
			}
			end(h)
			h.Run()
			if h.ended == nil {
				t.Fatalf("%s: OnClose was not called", name)
			}
			prepared, err := Prepare(OpText, []byte("text"))
			must(t, err)
			for range 3 {
				w, err := h.conn.NextWriter(OpText)
				if err == nil {
					_, _ = w.Write(make([]byte, 1<<20))
					err = w.Close()
				}
				for _, err := range []error{err, h.conn.Write(OpText, []byte("text")), h.conn.Ping([]byte("?")),
					h.conn.WritePrepared(prepared), h.conn.WriteContext(context.Background(), OpText, []byte("text")),
					h.conn.Close(1000, "")} {
					if !errors.Is(err, net.ErrClosed) {
						t.Errorf("%s: %v", name, err)
					}
				}
				h.conn.Abort(nil)
				if err := group.Send(OpText, []byte("text")); err != nil {
					t.Errorf("%s: Send: %v", name, err)
				}
			}
			prepared.Release()
			h.Run()
			if n := group.Len(); n != 0 {
				t.Errorf("%s: %d members are left", name, n)
			}
			if n := h.e.Stats().Conns; n != 0 {
				t.Errorf("%s: %d connections are left", name, n)
			}
			h.stop()
		}
	}
}

// A connection that its server closes while the peer's messages wait unread, or for slow callbacks,
// gets its peer's answer at once, and not after CloseTimeout.
func TestCloseBesideUnread(t *testing.T) {
	many := strings.Repeat(clientFrame(true, OpText, strings.Repeat("x", 1000)), 600)
	t.Run("Read", func(t *testing.T) {
		h := hold(t, &Options{Pull: true, PingInterval: quiet, CloseTimeout: time.Hour}, myriad.Config{})
		closeUnread(t, h, many)
	})
	t.Run("callbacks", func(t *testing.T) {
		var h *held
		o := &Options{PingInterval: quiet, CloseTimeout: time.Hour, Dispatch: web.DispatchPool}
		o.OnMessage = func(*Conn, Op, []byte) { h.NewParker().ParkFor(time.Second) }
		h = hold(t, o, myriad.Config{})
		closeUnread(t, h, many)
	})
}

func closeUnread(t *testing.T, h *held, many string) {
	h.client.Write([]byte(many))
	h.RunFor(100 * time.Millisecond)
	must(t, h.conn.Close(4000, "enough"))
	h.client.send(OpClose, closeWith(4000, ""))
	h.RunFor(10 * time.Second)
	h.wantEnd(4000, nil)
	h.stop()
}

// A writer that waits for a peer that does not read is let go by each kind of end, and none of them
// waits for the peer. TestWriteContextLeavesNothing has the end of a context.
func TestEndsBesideWriters(t *testing.T) {
	for name, end := range map[string]func(h *held){
		"Close": func(h *held) { _ = h.conn.Close(1000, "") },
		"Abort": func(h *held) { h.conn.Abort(nil) },
		"reset": func(h *held) { h.client.Reset() },
	} {
		for _, k := range []Compression{{}, {Enabled: true, Threshold: -1, WriteWindowBits: 15}} {
			h := hold(t, &Options{PingInterval: quiet, WriteLimit: 4 << 10, WriteTimeout: time.Hour, Compression: k,
				CloseTimeout: time.Second}, myriad.Config{})
			h.client.StopReading()
			var errs []error
			h.Go(func() {
				for range 1000 {
					if err := h.conn.Write(OpBinary, make([]byte, 3000)); err != nil {
						errs = append(errs, err)
						break
					}
				}
				w, err := h.conn.NextWriter(OpBinary)
				if err == nil {
					_, err = w.Write(make([]byte, 100_000))
				}
				errs = append(errs, err)
			})
			h.RunFor(time.Minute)
			if len(errs) > 0 {
				t.Fatalf("%s: the writer does not wait: %v", name, errs)
			}
			end(h)
			h.RunFor(100 * time.Millisecond)
			if len(errs) != 2 || !errors.Is(errs[0], net.ErrClosed) || !errors.Is(errs[1], net.ErrClosed) {
				t.Errorf("%s: the writer got %v", name, errs)
			}
			h.RunFor(10 * time.Second)
			if h.ended == nil {
				t.Errorf("%s: OnClose was not called", name)
			}
			h.stop()
		}
	}
}

// A Read that waits ends when the peer does not answer pings. A peer that answers them stays,
// although its messages are not read.
func TestKeepaliveBesideRead(t *testing.T) {
	o := func() *Options {
		return &Options{Pull: true, PingInterval: time.Second, PongTimeout: time.Second}
	}
	h := hold(t, o(), myriad.Config{})
	var got error
	h.Go(func() { _, _, got = h.conn.Read(context.Background()) })
	h.RunFor(5 * time.Second)
	if !errors.Is(got, os.ErrDeadlineExceeded) || !errors.Is(h.ended, os.ErrDeadlineExceeded) {
		t.Errorf("silent: Read got %v, OnClose %v", got, h.ended)
	}
	h.stop()

	h = hold(t, o(), myriad.Config{})
	h.client.send(OpText, "unread")
	for range 20 {
		h.RunFor(900 * time.Millisecond)
		h.client.send(OpPong, "")
	}
	if h.ended != nil {
		t.Errorf("unread: the connection has ended: %v", h.ended)
	}
	h.client.Write([]byte(strings.Repeat(clientFrame(true, OpText, "x"), 200))) // more than are read ahead
	h.RunFor(time.Minute)
	if h.ended != nil {
		t.Errorf("held up: the connection has ended: %v", h.ended)
	}
	h.conn.Abort(nil)
	h.Run()
	h.stop()
}

// Pings are answered while messages are dropped or refused for want of room, when the peer reads
// again.
func TestPingsBesideOverflow(t *testing.T) {
	for policy := range outbox.Policies {
		if policy == OverflowBlock || policy == OverflowClose {
			continue
		}
		h := hold(t, &Options{PingInterval: quiet, WriteLimit: 8 << 10, Overflow: policy}, myriad.Config{})
		h.client.StopReading()
		for i := range 10_000 {
			_ = h.conn.Write(OpText, numbered(i))
			if i%100 == 0 {
				h.Settle()
			}
		}
		h.client.send(OpPing, "still there?")
		h.RunFor(time.Second)
		h.client.Resume()
		h.RunFor(time.Second)
		if got := h.client.lines(t); !slices.Contains(got, `pong "still there?"`) {
			t.Errorf("%v: no pong among %d frames", policy, len(got))
		}
		h.conn.Abort(nil)
		h.Run()
		h.stop()
	}
}

// What is incomplete when a connection ends, or could not be read, keeps no memory. An idle
// connection does not keep its last message.
func TestEndsKeepNoMessage(t *testing.T) {
	packed := packedFrame(OpText, string(bytes.Repeat([]byte("text "), 10_000)), nil, 3)
	for name, wire := range map[string]string{
		"nothing": "", "a whole message": packed, "half of a packed message": packed[:len(packed)/2],
		"half of a frame": clientFrame(true, OpBinary, strings.Repeat("x", 50_000))[:30_000],
		"a fragment":      clientFrame(false, OpText, strings.Repeat("x", 50_000)),
		"a ping in it": clientFrame(false, OpText, strings.Repeat("x", 50_000)) +
			clientFrame(true, OpPing, "12345")[:8],
		"not UTF-8": clientFrame(true, OpText, strings.Repeat("x", 5000)+"\xff"),
		"not UTF-8, in fragments": clientFrame(false, OpText, strings.Repeat("x", 5000)) +
			clientFrame(true, opContinuation, "\xff"),
		"above the limit": clientFrame(false, OpText, strings.Repeat("x", 90_000)) +
			clientFrame(true, opContinuation, strings.Repeat("x", 20_000)),
		"damaged": bare(frameHeader{fin: true, rsv1: true, op: OpText}, "\xff\xff\xff"),
	} {
		for _, k := range []Compression{{Enabled: true}, {Enabled: true, WriteWindowBits: 15, ReadWindowBits: 15}} {
			before := buf.InUse()
			w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(&Options{PingInterval: quiet, Compression: k,
				MaxMessage: 100_000, OnMessage: echoBack}))
			c := w.client(compressingRequest() + wire)
			w.Settle()
			if n := buf.InUse() - before; n != 0 && (name == "nothing" || name == "a whole message") {
				t.Errorf("%s: %d blocks are held by an idle connection", name, n)
			}
			c.Reset()
			w.Run()
			if n := buf.InUse() - before; n != 0 {
				t.Errorf("%s: %d blocks are held at the end", name, n)
			}
			w.stop()
		}
	}
}

// The end of a WriteContext's context leaves nothing of its message, and the connection as it is,
// with and without windows.
func TestWriteContextLeavesNothing(t *testing.T) {
	for _, k := range []Compression{{}, {Enabled: true, Threshold: -1},
		{Enabled: true, Threshold: -1, WriteWindowBits: 15}} {
		conns := make(chan *Conn, 1)
		o := &Options{PingInterval: quiet, WriteLimit: 4 << 10, Compression: k, Workers: startPool(t),
			OnOpen: func(c *Conn) { conns <- c }}
		p := dialRaw(t, listen(t, startEngine(t, myriad.Config{Loops: 1}), Handler(o)))
		p.write(compressingRequest())
		c := <-conns
		var want []string
		rng := rand.New(rand.NewPCG(1, 2))
		write := func(ctx context.Context) error {
			text := string(randomText(rng, 20_000))
			err := c.WriteContext(ctx, OpText, []byte(text))
			if err == nil {
				want = append(want, text)
			}
			return err
		}
		var err error
		for err == nil { // until the peer's system takes no more
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
			err = write(ctx)
			cancel()
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%+v: %v", k, err)
		}
		received := make(chan []byte)
		go func() {
			all, _ := io.ReadAll(p)
			received <- all
		}()
		for range 5 {
			if err := write(context.Background()); err != nil {
				t.Fatalf("%+v: %v", k, err)
			}
		}
		noError(t, c.Close(1000, ""))
		p.write(clientFrame(true, OpClose, closeWith(1000, "")))
		if got := unpackAll(t, <-received, k.WriteWindowBits > 0); !slices.Equal(got, want) {
			t.Errorf("%+v: %d of %d messages have come", k, len(got), len(want))
		}
	}
}

// Messages that wait for slow callbacks when the peer has gone are heard like others. So are
// compressed ones with references to those before them.
func TestEndsBesideWindows(t *testing.T) {
	const messages = 20
	same := string(sampleText(rand.New(rand.NewPCG(1, 2)), 500))
	var wire string
	var window []byte
	texts := []string{"open"}
	for i := range messages {
		text := fmt.Sprint(i, ": ", same)
		if i%5 == 4 {
			wire += clientFrame(true, OpText, text)
		} else {
			wire += packedFrame(OpText, text, window, 1)
			window = slide(window, []byte(text), 1<<maxWindowBits)
		}
		texts = append(texts, line(OpText, text))
	}
	for name, end := range map[string]func(c *client){
		"reset": func(c *client) { c.Reset() },
		"FIN":   func(c *client) { c.CloseWrite() },
		"close": func(c *client) { c.send(OpClose, closeWith(1000, "")) },
	} {
		eachWay(t, func(t *testing.T, d web.Dispatch) {
			var w *world
			o := &Options{Dispatch: d, PingInterval: quiet,
				Compression: Compression{Enabled: true, Threshold: -1, ReadWindowBits: 15}}
			var conn *Conn
			o.OnMessage = func(c *Conn, _ Op, _ []byte) {
				conn = c
				if d != web.DispatchInline {
					w.NewParker().ParkFor(10 * time.Millisecond)
				}
			}
			o, heard := recorded(o)
			w = newWorld(t, 1, sim.Calm(), myriad.Config{}, handlerOf(t, o))
			c := w.client(compressingRequest() + wire)
			w.RunFor(20 * time.Millisecond)
			end(c)
			w.RunFor(time.Minute)
			got := heard.all()
			if n := len(got); n == 0 || !strings.HasPrefix(got[n-1], "end") || !slices.Equal(got[:n-1], texts) {
				t.Errorf("%s: heard %d of %d, at last %.60q", name, n-2, messages, got[max(0, n-2):])
			}
			conn.mu.Lock()
			if conn.cold != nil && conn.cold.windows != nil {
				t.Errorf("%s: the connection keeps its windows", name)
			}
			conn.mu.Unlock()
			w.finish(c)
		})
		t.Run("Read", func(t *testing.T) {
			h := &held{}
			o := &Options{Pull: true, PingInterval: quiet, OnOpen: func(c *Conn) { h.conn = c },
				OnClose:     func(*Conn, error) {},
				Compression: Compression{Enabled: true, Threshold: -1, ReadWindowBits: 15}}
			h.world = newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(o))
			c := h.world.client(compressingRequest() + wire)
			h.Settle()
			end(c)
			h.RunFor(time.Second)
			got := []string{"open"}
			h.Go(func() {
				for {
					op, p, err := h.conn.Read(context.Background())
					if err != nil {
						return
					}
					got = append(got, describe(op, false, p))
				}
			})
			h.RunFor(time.Minute)
			if !slices.Equal(got, texts) {
				t.Errorf("%s: read %d of %d", name, len(got)-1, messages)
			}
			c.Close()
			h.Run()
			h.stop()
		})
	}
}

// A message that would fit waits behind those that did not: WriteContext, and a policy that was
// changed meanwhile, keep the order.
func TestSmallMessagesWaitTheirTurn(t *testing.T) {
	for _, policy := range []Overflow{OverflowDropOldest, OverflowLatest} {
		for name, write := range map[string]func(c *Conn) error{
			"WriteContext": func(c *Conn) error { return c.WriteContext(context.Background(), OpText, []byte("last")) },
			"SetOverflow": func(c *Conn) error {
				if err := c.SetOverflow(OverflowBlock, 0); err != nil {
					return err
				}
				return c.Write(OpText, []byte("last"))
			},
		} {
			h := hold(t, &Options{PingInterval: quiet, Overflow: policy, WriteLimit: 4 << 10, WriteTimeout: time.Hour},
				myriad.Config{})
			h.client.StopReading()
			for i := range 1000 { // the peer's system takes some
				must(t, h.conn.Write(OpText, numbered(i)))
				h.Settle()
			}
			written := false
			h.Go(func() {
				noError(t, write(h.conn))
				written = true
			})
			h.RunFor(time.Second)
			if written && name == "WriteContext" {
				t.Errorf("%v, %s: it does not wait", policy, name)
			}
			h.client.Resume()
			h.RunFor(time.Second)
			got := h.client.lines(t)
			if n := len(got); got[n-1] != `text "last"` || got[n-2] != line(OpText, string(numbered(999))) {
				t.Errorf("%v, %s: the last messages are %.20q", policy, name, got[n-2:])
			}
			h.conn.Abort(nil)
			h.Run()
			h.stop()
		}
	}
}

// A Close beside a message in parts goes its way: the writer fails, and the peer's answer is waited
// for, and is what OnClose gets.
func TestCloseBesideParts(t *testing.T) {
	for _, k := range []Compression{{}, {Enabled: true, Threshold: -1, WriteWindowBits: 15}} {
		o := &Options{PingInterval: quiet, Compression: k, CloseTimeout: time.Hour}
		h := &held{}
		o.OnOpen = func(c *Conn) { h.conn = c }
		o.OnClose = func(_ *Conn, err error) { h.ended = err }
		h.world = newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(o))
		h.client = h.world.client(compressingRequest())
		h.Settle()
		w, err := h.conn.NextWriter(OpBinary)
		must(t, err)
		noise := randomBytes(rand.New(rand.NewPCG(1, 2)), 100_000)
		if _, err := w.Write(noise); err != nil {
			t.Fatal(err)
		}
		must(t, h.conn.Close(4000, "enough"))
		_, err = w.Write(noise)
		if closing := w.Close(); !errors.Is(err, net.ErrClosed) || !errors.Is(closing, net.ErrClosed) {
			t.Errorf("%+v: Write %v, Close %v", k, err, closing)
		}
		h.RunFor(time.Minute)
		if h.ended != nil || h.client.Ended() {
			t.Errorf("%+v: the connection has ended before its peer's answer: %v", k, h.ended)
		}
		h.client.send(OpClose, closeWith(4000, ""))
		h.RunFor(time.Minute)
		h.t = t
		h.wantEnd(4000, nil)
		h.finish()
	}
}
