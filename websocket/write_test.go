package websocket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/internal/outbox/outboxtest"
	"github.com/myriad-go/myriad/web"
)

func TestWriteSizes(t *testing.T) {
	h := hold(t, &Options{PingInterval: quiet, WriteLimit: 1 << 20}, myriad.Config{})
	var want []string
	for _, n := range []int{0, 1, 125, 126, 127, copied - 4, copied, copied + 1, 65535, 65536, 200_000} {
		p := bytes.Repeat([]byte{byte(n)}, n)
		if err := h.conn.Write(OpBinary, p); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
		want = append(want, line(OpBinary, string(p)))
		fill(p, 'x') // it was copied
	}
	h.Settle()
	h.wantRead(want...)
	h.finish()
}

func TestWriteRefuses(t *testing.T) {
	h := hold(t, &Options{PingInterval: quiet}, myriad.Config{MaxWrite: 1000})
	for _, op := range []Op{opContinuation, 3, OpClose, OpPing, OpPong, 11} {
		if err := h.conn.Write(op, nil); err == nil {
			t.Errorf("Write(%v) was taken", op)
		}
		if _, err := Prepare(op, nil); err == nil {
			t.Errorf("Prepare(%v) was taken", op)
		}
	}
	if err := h.conn.Write(OpText, make([]byte, 1001)); !errors.Is(err, myriad.ErrTooLarge) {
		t.Errorf("above Config.MaxWrite: %v", err)
	}
	h.Settle()
	h.wantRead()
	h.finish()
}

// A peer that does not read costs its limit and no more. A Write gives up after WriteTimeout,
// whole; the next ones do not wait until there has been room, and then wait anew.
func TestWriteTimeout(t *testing.T) {
	const timeout = 3 * time.Second
	h := holdSlow(t, &Options{WriteTimeout: timeout})
	var taken []string
	for range 2 {
		var began time.Time
		var err error
		for i := 0; err == nil; i++ {
			p := strings.Repeat(string(rune('a'+i%26)), 100+i)
			began = h.Now()
			if err = h.conn.Write(OpText, []byte(p)); err == nil {
				taken = append(taken, line(OpText, p))
			}
			if queued := h.conn.Queued(); queued > slowLimit {
				t.Fatalf("%d bytes are queued, the limit is %d", queued, slowLimit)
			}
		}
		if !errors.Is(err, myriad.ErrFull) || !errors.Is(err, os.ErrDeadlineExceeded) ||
			!strings.Contains(err.Error(), "WriteTimeout") {
			t.Errorf("Write: %v", err)
		}
		if waited := h.Now().Sub(began); waited < timeout || waited > timeout+time.Second {
			t.Errorf("Write has waited for %v, want %v", waited, timeout)
		}
		if n := h.conn.slow().Waiters(); n > 0 {
			t.Errorf("%d writers are to be woken that do not wait", n)
		}
		began = h.Now()
		if err = h.conn.Write(OpText, numbered(0)); !errors.Is(err, myriad.ErrFull) || h.Now() != began {
			t.Errorf("the next Write: %v after %v", err, h.Now().Sub(began))
		}
		h.client.Resume()
		h.Settle()
		h.wantRead(taken...)
		h.client.StopReading()
		h.Settle()
	}
	h.client.Resume()
	h.finish()
}

// One block for all connections, and it is freed when the last has sent it.
func TestPreparedIsShared(t *testing.T) {
	const n = 50
	var conns []*Conn
	o := &Options{PingInterval: quiet, OnOpen: func(c *Conn) { conns = append(conns, c) }}
	w := newWorld(t, 1, sim.Lossless(), myriad.Config{}, Handler(o))
	var clients []*client
	for range n {
		clients = append(clients, w.client(sampleRequest))
	}
	w.Run()
	payload := strings.Repeat("news ", 5000)
	before := buf.InUse()
	m, err := Prepare(OpText, []byte(payload))
	must(t, err)
	for _, c := range conns {
		noError(t, c.WritePrepared(m))
	}
	m.Release()
	if got := buf.InUse() - before; got != 1 {
		t.Errorf("%d blocks in use for one message on %d connections", got, n)
	}
	w.Run()
	for _, c := range clients {
		if got := c.lines(t); !slices.Equal(got, lines(line(OpText, payload))) {
			t.Errorf("a client read %.100q", got)
		}
		c.Close()
	}
	if got := buf.InUse() - before; got != 0 {
		t.Errorf("%d blocks in use after all have sent it", got)
	}
	w.Run()
	for _, c := range conns {
		if err := c.Write(OpText, nil); err == nil {
			t.Error("a closed connection takes a message")
		}
	}
	w.stop()
}

func TestWriteDoesNotAllocate(t *testing.T) {
	h := hold(t, &Options{PingInterval: quiet, WriteLimit: 1 << 30}, myriad.Config{})
	small, large := make([]byte, 128), make([]byte, 3*copied)
	m, err := Prepare(OpText, small)
	must(t, err)
	for name, f := range map[string]func() error{
		"small":    func() error { return h.conn.Write(OpText, small) },
		"large":    func() error { return h.conn.Write(OpText, large) },
		"prepared": func() error { return h.conn.WritePrepared(m) },
	} {
		must(t, f())
		got := testing.AllocsPerRun(200, func() { _ = f() })
		h.Settle()
		if limit := map[string]float64{"small": 0, "large": 2, "prepared": 0}[name]; got > limit && !raceEnabled {
			t.Errorf("%s: %v allocations for a write, want at most %v", name, got, limit)
		}
	}
	m.Release()
	h.finish()
}

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
	return numbersIn(h.client.lines(h.t))
}

func numbersIn(lines []string) (got []int) {
	for _, l := range lines {
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

func TestOverflowNames(t *testing.T) {
	for policy, want := range map[Overflow]string{OverflowBlock: "block", OverflowFail: "fail",
		OverflowDropNewest: "drop newest", OverflowDropOldest: "drop oldest", OverflowLatest: "latest",
		OverflowClose: "close", OverflowSample: "sample", outbox.Policies: "Overflow(7)", 200: "Overflow(200)"} {
		if got := policy.String(); got != want {
			t.Errorf("policy %d is %q, want %q", uint8(policy), got, want)
		}
	}
}

// A policy of one connection costs no memory, and neither does a message in parts when it is over.
func TestPolicyCostsNothing(t *testing.T) {
	h := hold(t, &Options{PingInterval: quiet}, myriad.Config{})
	if err := h.conn.SetOverflow(OverflowDropOldest, 0); err != nil || h.conn.cold != nil {
		t.Errorf("after SetOverflow: %v, %+v", err, h.conn.cold)
	}
	w, err := h.conn.NextWriter(OpBinary)
	if err == nil {
		_, err = w.Write(make([]byte, 3*partBytes))
	}
	if err != nil || !h.conn.inParts() {
		t.Fatalf("in parts: %v, %v", h.conn.inParts(), err)
	}
	err = w.Close()
	h.Settle()
	if err != nil || h.conn.cold != nil {
		t.Errorf("behind a message in parts: %v, %+v", err, h.conn.cold)
	}
	h.finish()
}

// lastRun is the numbers behind the last gap.
func lastRun(all []int) []int {
	for i := len(all) - 1; i > 0; i-- {
		if all[i] != all[i-1]+1 {
			return all[i:]
		}
	}
	return nil
}

// Half of the limit is for messages that may be dropped, to the byte, wherever the limit comes
// from.
func TestDroppableHalf(t *testing.T) {
	const limit = 16 << 10
	const size = 512 // of a frame, with its header of four bytes
	message := func(i int) []byte { return append(numbered(i), make([]byte, size)...)[:size-4] }
	for name, set := range map[string]func(o *Options) (later func(c *Conn) error){
		"Options": func(o *Options) func(*Conn) error {
			o.Overflow, o.WriteLimit = OverflowDropOldest, limit
			return func(*Conn) error { return nil }
		},
		"SetOverflow": func(o *Options) func(*Conn) error {
			o.WriteLimit = 4 * limit
			return func(c *Conn) error { return c.SetOverflow(OverflowDropOldest, limit) }
		},
		"SetOverflow back to Options'": func(o *Options) func(*Conn) error {
			o.WriteLimit = limit
			return func(c *Conn) error {
				return errors.Join(c.SetOverflow(OverflowFail, 5*limit), c.SetOverflow(OverflowDropOldest, 0))
			}
		},
		"SetOverflow to the same limit": func(o *Options) func(*Conn) error {
			o.WriteLimit = limit
			return func(c *Conn) error {
				return errors.Join(c.SetOverflow(OverflowFail, 5*limit), c.SetOverflow(OverflowDropOldest, limit))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := &Options{PingInterval: quiet}
			later := set(o)
			h := hold(t, o, myriad.Config{})
			must(t, later(h.conn))
			h.client.StopReading()
			h.Settle()
			for i := range 400 {
				must(t, h.conn.Write(OpText, message(i)))
				h.Settle()
			}
			if queued := h.conn.Queued(); queued > limit/2 || queued <= limit/2-size {
				t.Errorf("%d bytes are queued that cannot be dropped, of half of %d", queued, limit)
			}
			if dropped := o.Stats().DroppedBytes; dropped != h.conn.Dropped()*size {
				t.Errorf("%d bytes of %d messages of %d are counted as dropped", dropped, h.conn.Dropped(), size)
			}
			tail := lastRun(h.numbers())
			if want := limit / 2 / size; len(tail) != want || tail[len(tail)-1] != 399 {
				t.Errorf("%d messages of %d bytes have waited in half of %d, want %d", len(tail), size, limit, want)
			}
			h.finish()
		})
	}
}

// A message that is refused is counted. The loop is asked only once whether the kernel takes what
// is queued: it may be held up.
func TestRefusalsDoNotWait(t *testing.T) {
	for _, policy := range []Overflow{OverflowFail, OverflowDropNewest} {
		o := &Options{Overflow: policy}
		h := holdSlow(t, o)
		refused := 0
		for _, err := range h.flood(400) {
			if errors.Is(err, myriad.ErrFull) {
				refused++
			}
		}
		if n := o.Stats().Refused; n != uint64(refused) || (policy == OverflowFail) != (n > 0) {
			t.Errorf("%v: %d messages were refused, %d are counted", policy, refused, n)
		}
		held := h.NewParker()
		must(t, h.conn.conn().Loop().Do(held.Park))
		h.RunFor(time.Millisecond)
		began, dropped := h.Now(), h.conn.Dropped()
		if err := h.conn.Write(OpText, numbered(0)); (policy == OverflowFail) != errors.Is(err, myriad.ErrFull) {
			t.Error(err)
		}
		if took := h.Now().Sub(began); took > outbox.FlushWait/2 {
			t.Errorf("%v: a message waits %v for a loop that has been asked already", policy, took)
		}
		if policy == OverflowDropNewest && h.conn.Dropped() != dropped+1 {
			t.Error("the message is not counted as dropped")
		}
		held.Unpark()
		h.finish()
	}
}

// OnDrained is called once for each time that messages were refused, and not for the room that a
// call of WriteContext has waited for.
func TestDrainedOnlyForRefusals(t *testing.T) {
	drains := 0
	o := &Options{Overflow: OverflowFail, OnDrained: func(*Conn) { drains++ }}
	h := holdSlow(t, o)
	for round := 1; round < 3; round++ {
		h.flood(400)
		h.numbers()
		if drains != round {
			t.Fatalf("%d calls of OnDrained after %d floods", drains, round)
		}
		h.client.StopReading()
		h.Settle()
		written := 0
		h.Go(func() {
			for ; written < 400; written++ {
				noError(t, h.conn.WriteContext(t.Context(), OpText, numbered(written)))
			}
		})
		h.RunFor(time.Second)
		if written == 400 || o.Stats().Waited < uint64(round) {
			t.Fatalf("%d messages are written, %d calls are counted that have waited", written, o.Stats().Waited)
		}
		h.client.Resume()
		h.Settle()
		if drains != round || written != 400 || h.conn.Queued() != 0 {
			t.Errorf("%d calls of OnDrained after %d floods; %d messages are written", drains, round, written)
		}
		h.client.StopReading()
		h.Settle()
	}
	h.client.Resume()
	h.finish()
}

// Messages that wait before the connection has its loop may be dropped, too. Those that are left
// come before the close frame.
func TestDroppableBeforeOpened(t *testing.T) {
	s, err := (&Options{PingInterval: quiet, WriteLimit: 4 << 10, Overflow: OverflowDropOldest}).settings()
	must(t, err)
	c := newConn(s, deflateTerms{}, 0)
	for i := range 20 {
		noError(t, c.Write(OpText, numbered(i)))
	}
	noError(t, c.Close(4000, ""))
	w := newWorld(t, 1, sim.Calm(), myriad.Config{}, upgradeTo{c})
	p := w.client("")
	w.Settle()
	var want []string
	for _, i := range []int{0, 1, 2, 3, 16, 17, 18, 19} { // four are output, four wait
		want = append(want, line(OpText, string(numbered(i))))
	}
	want = append(want, line(OpClose, closeWith(4000, "")))
	if got := serverLines(t, append([]byte("HTTP/1.1 101 \r\n\r\n"), p.Received()...)); !slices.Equal(got, want) {
		t.Errorf("the client read %d frames: %.300q", len(got), got)
	}
	w.finish(p)
}

// A connection keeps the promises of every policy: over both versions of HTTP in a simulated world,
// and where writers wait, on real sockets.
func TestPolicies(t *testing.T) {
	var all []outbox.Policy
	for p := range outbox.Policies {
		if p != outbox.Block {
			all = append(all, p)
		}
	}
	eachWay(t, func(t *testing.T, d web.Dispatch) {
		outboxtest.Run(t, outboxtest.Config{Policies: all, Many: 400,
			New: func(t *testing.T, p outbox.Policy) outboxtest.Receiver { return newSlowPeer(t, p, d) }})
	})
	outboxtest.Run(t, outboxtest.Config{Policies: all, Many: 400, New: newSlowStream})
	outboxtest.Run(t, outboxtest.Config{Policies: []outbox.Policy{outbox.Block}, Many: 1000,
		New: func(t *testing.T, _ outbox.Policy) outboxtest.Receiver {
			opened := make(chan *Conn, 1)
			o := &Options{WriteLimit: slowLimit, PingInterval: quiet, Workers: startPool(t),
				OnOpen: func(c *Conn) { opened <- c }}
			p := dialRaw(t, listen(t, startEngine(t, myriad.Config{Loops: 1}), handlerOf(t, o))).open()
			return &waitedFor{peer: p, conn: <-opened}
		}})
}

// A told connection has counted what its program is told.
type told struct {
	options        *Options
	conn           *Conn
	drains, floods int
	refused, lost  uint64
	ended          error
}

func (r *told) count(p outbox.Policy, o *Options) *Options {
	o.Overflow, o.OnDrained = Overflow(p), func(*Conn) { r.drains++ }
	r.options = o
	return o
}

func (r *told) offer(n int) outboxtest.Answer {
	err := r.conn.Write(OpText, numbered(n))
	if errors.Is(err, myriad.ErrFull) {
		r.refused++
	}
	return answerOf(err)
}

// drained is called when the peer has read everything.
func (r *told) drained(t *testing.T) {
	st := r.options.Stats()
	if lost := r.conn.Dropped() + r.refused; lost > r.lost {
		r.lost = lost
		r.floods++
	}
	closed := uint64(0)
	if r.Closed() {
		closed = 1
	}
	if st.Dropped != r.conn.Dropped() || st.Refused != r.refused || st.ClosedSlow != closed || r.drains != r.floods {
		t.Errorf("%+v with %d refusals, %d dropped, closed %v; OnDrained was called %d times, want %d", st, r.refused,
			r.conn.Dropped(), r.Closed(), r.drains, r.floods)
	}
}

// finish ends the world of a peer that has read these frames.
func (r *told) finish(t *testing.T, code StatusCode, read []string, stop func()) {
	closed := r.Closed()
	stop()
	if closed && (read[len(read)-1] != line(OpClose, closeWith(code, tooSlow)) || CloseStatus(r.ended) != code ||
		!errors.Is(r.ended, myriad.ErrFull)) {
		t.Errorf("closed with %q, OnClose(%v)", read[len(read)-1], r.ended)
	}
}

func (r *told) Missed() uint64 { return r.conn.Dropped() }
func (r *told) Closed() bool   { return !r.conn.end.writable() }

// A slowPeer reads only in Drain.
type slowPeer struct {
	told
	h   *held
	got int // messages that Drain has returned
}

func newSlowPeer(t *testing.T, p outbox.Policy, d web.Dispatch) *slowPeer {
	r := new(slowPeer)
	r.h = holdSlow(t, r.count(p, &Options{Dispatch: d, OverflowStatus: StatusPolicyViolation}))
	r.conn = r.h.conn
	t.Cleanup(func() {
		r.finish(t, StatusPolicyViolation, r.h.client.lines(t), func() {
			r.h.finish()
			r.ended = r.h.ended
		})
	})
	return r
}

func (r *slowPeer) Offer(n int) outboxtest.Answer {
	answer := r.offer(n)
	if queued := r.conn.Queued(); queued > slowLimit+600 {
		r.h.t.Fatalf("%d bytes are queued", queued)
	}
	if n%7 == 0 {
		r.h.Settle()
	}
	return answer
}

func (r *slowPeer) Drain() []int {
	all := r.h.numbers()
	got := all[r.got:]
	r.got = len(all)
	r.drained(r.h.t)
	r.h.client.StopReading()
	r.h.Settle()
	return got
}

// A slowStream is a WebSocket over HTTP/2 whose client gives it room only in Drain.
type slowStream struct {
	told
	h   *muxHeld
	got int
}

func newSlowStream(t *testing.T, p outbox.Policy) outboxtest.Receiver {
	r := new(slowStream)
	r.h = holdMux(t, streamWindow, r.count(p, &Options{WriteLimit: slowLimit}))
	r.conn = r.h.conn
	t.Cleanup(func() {
		r.finish(t, StatusTryAgainLater, r.h.c.lines(1), func() {
			r.h.stop(r.h.c)
			r.ended = r.h.ended
		})
	})
	return r
}

const streamWindow = 10 << 10

func (r *slowStream) Offer(n int) outboxtest.Answer { return r.offer(n) }

// Drain reads all, and leaves the window that was there at first.
func (r *slowStream) Drain() []int {
	before := len(r.h.c.stream(1).bytes)
	for round := 0; round == 0 || r.conn.Queued() > 0; round++ {
		r.h.Settle()
		came := len(r.h.c.stream(1).bytes)
		if came > before {
			r.h.c.Write(h2.AppendWindowUpdate(nil, 1, came-before))
		}
		before = came
		r.h.Settle()
	}
	all := numbersIn(r.h.c.lines(1))
	got := all[r.got:]
	r.got = len(all)
	r.drained(r.h.t)
	return got
}

func answerOf(err error) outboxtest.Answer {
	switch {
	case err == nil:
		return outboxtest.Taken
	case errors.Is(err, net.ErrClosed):
		return outboxtest.Ended
	}
	return outboxtest.Full
}

// A waitedFor peer is on a real socket, where a writer waits for it.
type waitedFor struct {
	peer  *rawPeer
	conn  *Conn
	pings int
}

func (r *waitedFor) Offer(n int) outboxtest.Answer {
	return answerOf(r.conn.Write(OpText, append(numbered(n), make([]byte, 4000)...)))
}

func (r *waitedFor) Drain() (got []int) {
	r.pings++
	ping := fmt.Sprint(r.pings)
	r.peer.write(clientFrame(true, OpPing, ping))
	for {
		f := r.peer.frame()
		var n int
		if _, err := fmt.Sscanf(f, `text "%d `, &n); err == nil {
			got = append(got, n)
		} else if f == line(OpPong, ping) || f == "EOF" {
			return got
		}
	}
}

func (r *waitedFor) Missed() uint64 { return r.conn.Dropped() }
func (r *waitedFor) Closed() bool   { return r.conn.end.gone() }
