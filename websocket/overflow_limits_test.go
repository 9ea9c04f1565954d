package websocket

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/outbox"
)

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

// A message that is larger than the half of the limit still waits, alone.
func TestLargestDroppable(t *testing.T) {
	for _, policy := range []Overflow{OverflowDropOldest, OverflowLatest} {
		h := holdSlow(t, &Options{Overflow: policy})
		h.flood(400)
		large := append(numbered(1000), make([]byte, slowLimit)...)
		must(t, h.conn.Write(OpText, large))
		if got := lastRun(h.numbers()); !slices.Equal(got, []int{1000}) {
			t.Errorf("%v: behind the gap come %v", policy, got)
		}
		h.finish()
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

// A sender that waits for the loop goes on when the last member has left.
func TestLeaveLetsSendersGo(t *testing.T) {
	a := newAudienceIn(t, 1, sim.Calm(), 1, &Options{})
	for c, m := range a.members {
		held := a.NewParker()
		must(t, c.conn().Loop().Do(held.Park))
		a.RunFor(time.Millisecond)
		sent := 0
		a.Go(func() {
			for ; sent <= maxTick; sent++ {
				noError(t, a.group.Send(OpText, []byte("x")))
			}
		})
		a.RunFor(time.Millisecond)
		if sent != maxTick {
			t.Fatalf("a sender has sent %d messages to a loop that is held up, want %d", sent, maxTick)
		}
		m.Leave()
		a.RunFor(time.Millisecond)
		if sent != maxTick+1 {
			t.Error("a sender waits for a member that has left")
		}
		held.Unpark()
	}
	a.leave()
}

// A Group counts as members those that are late, and All has them.
func TestAllHasLateMembers(t *testing.T) {
	a := newAudienceIn(t, 1, sim.Calm(), 3, &Options{WriteLimit: 4 << 10})
	a.clients[1].StopReading()
	a.sendNumbered(0, 400, 1000)
	a.Settle()
	all := slices.Collect(a.group.All())
	if len(all) != 3 || a.group.Len() != 3 {
		t.Errorf("%d members, %d in All, want 3", a.group.Len(), len(all))
	}
	for c, m := range a.members {
		if m.Conn() != c || !slices.Contains(all, c) {
			t.Error("a member is missing")
		}
	}
	a.clients[1].Resume()
	a.leave()
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

// After a Write has failed for want of time, the next one waits again if there has been room.
func TestWriteWaitsAnew(t *testing.T) {
	const timeout = 3 * time.Second
	h := holdSlow(t, &Options{WriteTimeout: timeout})
	for range 2 {
		var began time.Time
		for err := error(nil); err == nil; {
			began = h.Now()
			err = h.conn.Write(OpText, numbered(0))
		}
		if waited := h.Now().Sub(began); waited < timeout || waited > 2*timeout {
			t.Errorf("Write has waited for %v, want %v", waited, timeout)
		}
		if n := h.conn.slow().Waiters(); n > 0 {
			t.Errorf("%d writers are to be woken that do not wait", n)
		}
		h.client.Resume()
		h.Settle()
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
