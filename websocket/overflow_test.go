package websocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/web"
)

const slowLimit = 16 << 10

// holdSlow is a connection whose peer has stopped to read, and the numbered messages that it is
// sent.
func holdSlow(t *testing.T, o *Options) *held {
	t.Helper()
	o.PingInterval, o.WriteLimit = quiet, slowLimit
	h := hold(t, o, myriad.Config{})
	h.client.StopReading()
	h.Settle()
	return h
}

func numbered(i int) []byte { return []byte(fmt.Sprintf("%d %s", i, strings.Repeat("x", 500))) }

// flood writes n messages, of which the kernel's buffers and the limit take about a third, and
// returns what Write said.
func (h *held) flood(n int) (errs []error) {
	h.t.Helper()
	for i := range n {
		errs = append(errs, h.conn.Write(OpText, numbered(i)))
		if h.conn.Queued() > slowLimit+600 {
			h.t.Fatalf("%d bytes are queued", h.conn.Queued())
		}
		if i%7 == 0 {
			h.Settle()
		}
	}
	return errs
}

// numbers are those of the messages that the peer has read in the end.
func (h *held) numbers() (got []int) {
	h.t.Helper()
	h.client.Resume()
	h.Settle()
	for _, l := range h.client.lines(h.t) {
		var n int
		if _, err := fmt.Sscanf(l, `text "%d `, &n); err == nil {
			got = append(got, n)
		}
	}
	return got
}

func (h *held) finish() { h.world.finish(h.client) }

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func TestOverflowFail(t *testing.T) {
	eachWay(t, func(t *testing.T, d web.Dispatch) {
		drains := 0
		h := holdSlow(t, &Options{Dispatch: d, Overflow: OverflowFail, OnDrained: func(*Conn) { drains++ }})
		errs := h.flood(400)
		full := slices.IndexFunc(errs, func(err error) bool { return errors.Is(err, myriad.ErrFull) })
		if full < 0 {
			t.Fatal("nothing was refused")
		}
		h.Settle()
		if drains != 0 {
			t.Errorf("%d calls of OnDrained before there was room", drains)
		}
		got := h.numbers()
		for i, err := range errs {
			if (err == nil) != slices.Contains(got, i) {
				t.Fatalf("message %d: %v, and it has arrived: %v", i, err, slices.Contains(got, i))
			}
		}
		if drains != 1 {
			t.Errorf("%d calls of OnDrained", drains)
		}
		h.finish()
	})
}

func TestOverflowDropNewest(t *testing.T) {
	o := &Options{Overflow: OverflowDropNewest}
	h := holdSlow(t, o)
	for i, err := range h.flood(400) {
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	got := h.numbers()
	if len(got) == 400 || !slices.Equal(got, upTo(len(got))) {
		t.Errorf("%d have arrived, not the first ones: %v", len(got), got)
	}
	if dropped := h.conn.Dropped(); dropped != uint64(400-len(got)) || o.Stats().Dropped != dropped {
		t.Errorf("%d are missing, %d and %d are counted as dropped", 400-len(got), dropped, o.Stats().Dropped)
	}
	noError(t, h.conn.Write(OpText, numbered(1000)))
	if got = h.numbers(); got[len(got)-1] != 1000 {
		t.Errorf("when there is room again, the last is %d", got[len(got)-1])
	}
	h.finish()
}

// What arrives is a beginning, and then, behind one gap, the end.
func TestOverflowDropOldestAndLatest(t *testing.T) {
	for policy, least := range map[Overflow]int{OverflowDropOldest: slowLimit/2/520 - 2, OverflowLatest: 1} {
		t.Run(policy.String(), func(t *testing.T) {
			drains := 0
			h := holdSlow(t, &Options{Overflow: policy, OnDrained: func(*Conn) { drains++ }})
			for i, err := range h.flood(400) {
				if err != nil {
					t.Fatalf("message %d: %v", i, err)
				}
			}
			if err := h.conn.Ping([]byte("between")); err != nil && !errors.Is(err, myriad.ErrFull) {
				t.Error(err)
			}
			got := h.numbers()
			gap := slices.IndexFunc(got, func(n int) bool { return n != slices.Index(got, n) })
			tail := got[max(0, gap):]
			if gap < 0 || tail[len(tail)-1] != 399 || tail[0] != 400-len(tail) || len(tail) < least ||
				policy == OverflowLatest && len(tail) > 1 {
				t.Errorf("arrived are %v", got)
			}
			if dropped := h.conn.Dropped(); dropped != uint64(400-len(got)) {
				t.Errorf("%d are missing, %d are counted", 400-len(got), dropped)
			}
			if drains != 1 {
				t.Errorf("%d calls of OnDrained", drains)
			}
			h.finish()
		})
	}
}

// What waits when the connection is closed is sent before the close frame; when it is dropped,
// nothing is left of it.
func TestOverflowQueueAtTheEnd(t *testing.T) {
	for _, orderly := range []bool{true, false} {
		h := holdSlow(t, &Options{Overflow: OverflowDropOldest})
		h.flood(400)
		if orderly {
			noError(t, h.conn.Close(StatusNormalClosure, ""))
			if got := h.numbers(); got[len(got)-1] != 399 {
				t.Errorf("the last before the close frame is %d", got[len(got)-1])
			}
			if all := h.client.lines(t); all[len(all)-1] != line(OpClose, closeWith(1000, "")) {
				t.Errorf("the end is %q", all[len(all)-1])
			}
		} else {
			h.conn.Abort(nil)
		}
		h.finish()
	}
}

func TestOverflowClose(t *testing.T) {
	for status, want := range map[StatusCode]StatusCode{0: StatusTryAgainLater,
		StatusPolicyViolation: StatusPolicyViolation} {
		o := &Options{Overflow: OverflowClose, OverflowStatus: status}
		h := holdSlow(t, o)
		errs := h.flood(400)
		if err := errs[len(errs)-1]; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write behind the end: %v", err)
		}
		taken := slices.IndexFunc(errs, func(err error) bool { return err != nil })
		got := h.numbers()
		if !slices.Equal(got, upTo(taken)) {
			t.Errorf("%d were taken, arrived are %v", taken, got)
		}
		if all := h.client.lines(t); all[len(all)-1] != line(OpClose, closeWith(want, "too slow")) {
			t.Errorf("the end is %q", all[len(all)-1])
		}
		h.client.Close()
		h.Run()
		h.wantEnd(want, myriad.ErrFull)
		if o.Stats().ClosedSlow != 1 {
			t.Errorf("counted: %+v", o.Stats())
		}
		h.stop()
	}
}

// On a loop, nothing waits.
func TestOverflowBlockOnLoop(t *testing.T) {
	var failed error
	o := &Options{Overflow: OverflowBlock, Dispatch: web.DispatchInline}
	o.OnMessage = func(c *Conn, _ Op, _ []byte) {
		for failed == nil {
			failed = c.Write(OpText, numbered(0))
		}
		if err := c.WriteContext(context.Background(), OpText, numbered(0)); !errors.Is(err, myriad.ErrOnLoop) {
			t.Errorf("WriteContext: %v", err)
		}
	}
	e := startEngine(t, myriad.Config{Loops: 1})
	p := dialRaw(t, listen(t, e, Handler(o))).open()
	p.write(clientFrame(true, OpText, "go") + clientFrame(true, OpClose, closeWith(1000, "")))
	for f := ""; f != line(OpClose, closeWith(1000, "")); f = p.frame() {
		if f == "EOF" {
			t.Fatal("ended without a close frame")
		}
	}
	if !errors.Is(failed, myriad.ErrOnLoop) || !errors.Is(failed, myriad.ErrFull) {
		t.Errorf("Write: %v", failed)
	}
}

// Elsewhere the writer waits, and everything arrives in order, however slowly it is read.
func TestOverflowBlockWaits(t *testing.T) { eachQueue(t, testOverflowBlockWaits) }

func testOverflowBlockWaits(t *testing.T, d web.Dispatch) {
	const n = 3000
	e := startEngine(t, myriad.Config{Loops: 1})
	pool := startPool(t)
	o := &Options{Overflow: OverflowBlock, WriteLimit: slowLimit, Workers: pool, Dispatch: d, PingInterval: quiet}
	o.OnOpen = func(c *Conn) {
		for i := range n {
			if err := c.Write(OpText, append(numbered(i), make([]byte, 4000)...)); err != nil {
				t.Errorf("message %d: %v", i, err)
				return
			}
		}
	}
	p := dialRaw(t, listen(t, e, handlerOf(t, o))).open()
	for end := time.Now().Add(hangs); o.Stats().Waited == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody waits for a peer that does not read")
		}
	}
	for i := range n {
		if i%100 == 0 {
			_ = p.SetDeadline(time.Now().Add(hangs)) // megabytes are on their way
		}
		if got := p.frame(); !strings.HasPrefix(got, fmt.Sprintf(`text "%d x`, i)) {
			t.Fatalf("message %d is %.40q", i, got)
		}
	}
}

// A waiting call returns at the end of the connection and at the end of its context.
func TestWriterIsLetGo(t *testing.T) {
	e := startEngine(t, myriad.Config{Loops: 1})
	conns := make(chan *Conn, 1)
	o := &Options{Overflow: OverflowBlock, WriteLimit: slowLimit, Workers: startPool(t),
		OnOpen: func(c *Conn) { conns <- c }}
	addr := listen(t, e, Handler(o))
	for name, c := range map[string]struct {
		let  func(c *Conn, p *rawPeer, cancel func())
		want error
	}{
		"context": {func(_ *Conn, _ *rawPeer, cancel func()) { cancel() }, context.Canceled},
		"Close":   {func(c *Conn, _ *rawPeer, _ func()) { _ = c.Close(1000, "") }, net.ErrClosed},
		"Abort":   {func(c *Conn, _ *rawPeer, _ func()) { c.Abort(nil) }, net.ErrClosed},
		"peer":    {func(_ *Conn, p *rawPeer, _ func()) { p.Conn.Close() }, net.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			p := dialRaw(t, addr).open()
			conn := <-conns
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ended := make(chan error)
			before := o.Stats().Waited
			go func() {
				for {
					if err := conn.WriteContext(ctx, OpBinary, make([]byte, 8<<10)); err != nil {
						ended <- err
						return
					}
				}
			}()
			for o.Stats().Waited == before {
				time.Sleep(time.Millisecond)
			}
			c.let(conn, p, cancel)
			if err := <-ended; !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			conn.Abort(nil)
		})
	}
}

// Before the connection has its loop the same policies hold.
func TestSetOverflow(t *testing.T) {
	h := hold(t, &Options{PingInterval: quiet}, myriad.Config{})
	for _, bad := range []struct {
		p     Overflow
		limit int
	}{{outbox.Policies, 0}, {OverflowFail, -1}} {
		if err := h.conn.SetOverflow(bad.p, bad.limit); err == nil {
			t.Errorf("SetOverflow(%v, %d) was taken", bad.p, bad.limit)
		}
	}
	must(t, h.conn.SetOverflow(OverflowDropNewest, slowLimit))
	h.client.StopReading()
	h.Settle()
	h.flood(400)
	if h.conn.Dropped() == 0 {
		t.Error("nothing was dropped")
	}
	h.client.Resume()
	h.Settle()
	h.finish()
}
