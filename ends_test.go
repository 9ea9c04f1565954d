package myriad

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/handoff"
	"github.com/myriad-go/myriad/internal/wheel"
)

// A recorder is a driver that notes what a loop asks of it for the one conn of a test.
type recorder struct {
	driver.Driver
	calls  []string
	refuse bool // the kernel takes no bytes
}

func (r *recorder) note(call string) { r.calls = append(r.calls, call) }

func (r *recorder) Send(_ driver.ID, out *buf.Chain) int64 {
	n := out.Len()
	r.note(fmt.Sprint("send ", n))
	out.Discard(n)
	if r.refuse {
		return int64(n)
	}
	return 0
}

func (r *recorder) CloseWrite(driver.ID)   { r.note("end") }
func (r *recorder) Close(driver.ID)        { r.note("close") }
func (r *recorder) Abort(driver.ID)        { r.note("abort") }
func (r *recorder) Pause(driver.ID)        { r.note("pause") }
func (r *recorder) Resume(driver.ID)       { r.note("resume") }
func (r *recorder) Detach(driver.ID) error { r.note("detach"); return nil }

// A halfOpen is a handler that does not answer the peer's FIN.
type halfOpen struct {
	got    int
	closed []error
}

func (*halfOpen) Opened(*Conn)                 {}
func (h *halfOpen) Received(_ *Conn, p []byte) { h.got += len(p) }
func (*halfOpen) Ended(*Conn)                  {}
func (h *halfOpen) Closed(_ *Conn, err error)  { h.closed = append(h.closed, err) }

// An end is a conn on a recorder, and what a test does with it.
type end struct {
	t *testing.T
	*recorder
	c *Conn
	h *halfOpen
}

const (
	endLinger = 1000 // bytes
	endTime   = time.Second
)

func newEnd(t *testing.T, cut bool) *end {
	d := &end{t: t, recorder: &recorder{}, h: &halfOpen{}}
	e := &Engine{sys: standing{}, admission: admission{quota: quota{most: 1}}, cfg: Config{WriteLimit: 1 << 20,
		MaxWrite:      1 << 20,
		LingerTimeout: endTime, LingerBytes: endLinger, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}}
	l := assemble(&Loop{engine: e, drv: d.recorder, wheel: wheel.New(0), listeners: listeners{}})
	l.owner.Init(handoff.Loop{}, nil)
	if cut {
		l.can.Cut = func(driver.ID) { d.note("cut") }
	}
	e.loops = []*Loop{l}
	d.c = newConn(l, d.h)
	l.enter(d.c, driver.MakeID(0, 1, 1), open)
	return d
}

// settle is the end of a turn.
func (d *end) settle() { d.c.loop.settler.drainDirty(dirtySlice); d.c.loop.settler.settle(d.c) }

func (d *end) write(n int) {
	d.t.Helper()
	if _, err := d.c.Write(make([]byte, n)); err != nil {
		d.t.Fatal(err)
	}
}

func (d *end) events() *sink { return (*sink)(d.c.loop) }

// asked checks what the loop has asked of the driver since the last call, and the conn's state.
func (d *end) asked(state string, calls ...string) {
	d.t.Helper()
	d.settle() // which asks for nothing twice
	if got := d.c.State(); !slices.Equal(d.calls, calls) || got != state {
		d.t.Fatalf("%q, and %q; want %q, and %q", d.calls, got, calls, state)
	}
	d.calls = nil
}

// expire lets the conn's timer run out, if it does so after d.
func (d *end) expire(after time.Duration) {
	l := d.c.loop
	l.now += wheel.Millis(after)
	l.wheel.Advance(l.now, l.expired)
}

// over checks what the handler was told.
func (d *end) over(want error) {
	d.t.Helper()
	if len(d.h.closed) != 1 || !errors.Is(d.h.closed[0], want) || want == nil && d.h.closed[0] != nil {
		d.t.Errorf("closed with %v, want %v once", d.h.closed, want)
	}
}

func TestEndInOrder(t *testing.T) {
	d := newEnd(t, true)
	d.write(6)
	d.c.Close()
	d.settle()
	d.asked("lingering", "send 6", "resume", "end")
	d.events().Ended(d.c.id)
	d.asked("closed", "close")
	d.events().Closed(d.c.id, nil)
	d.over(nil)
}

// Where the peer has ended its side, ours ends the conn, however it ends.
func TestEndBehindThePeers(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(c *Conn)
		cut  bool // the driver can
		want []string
	}{
		{"CloseWrite", func(c *Conn) { _ = c.CloseWrite() }, true, []string{"send 6", "close"}},
		{"Close", func(c *Conn) { _ = c.Close() }, true, []string{"send 6", "resume", "close"}},
		{"Cut", (*Conn).CloseTruncated, true, []string{"send 6", "resume", "cut", "close"}},
		{"Cut without a driver that can", (*Conn).CloseTruncated, false, []string{"send 6", "resume", "end", "close"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newEnd(t, tt.cut)
			d.events().Ended(d.c.id)
			d.asked("peer ended")
			d.write(6)
			tt.end(d.c)
			d.settle()
			d.asked("closed", tt.want...)
			d.events().Closed(d.c.id, nil)
			d.over(nil)
		})
	}
}

// A FIN that the conn's layer judges ends its side, too, once the conn is closing.
func TestEndBehindAFinOfTheLayer(t *testing.T) {
	d := newEnd(t, true)
	d.c.ownCold().fin = true
	d.c.Close()
	d.settle()
	d.asked("closed", "resume", "close")
	d.events().Closed(d.c.id, nil)
	d.over(nil)
}

// Our side ends once, and the conn stays open.
func TestEndOfOneSide(t *testing.T) {
	d := newEnd(t, true)
	if err := d.c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	d.settle()
	d.asked("write ended", "end")
	d.events().Received(d.c.id, make([]byte, 10))
	if d.asked("write ended"); d.h.got != 10 {
		t.Errorf("%d bytes received behind our end, want 10", d.h.got)
	}
	d.c.Close()
	d.settle()
	d.asked("lingering", "resume")
}

// A conn that ends by Cut before its peer does asks for that once.
func TestEndByCut(t *testing.T) {
	d := newEnd(t, true)
	d.c.CloseTruncated()
	d.settle()
	d.asked("lingering", "resume", "cut")
	d.events().Ended(d.c.id)
	d.asked("closed", "close")
}

// While output does not leave, a close goes on if 4 KiB of it have left in its time, and no byte
// less.
func TestEndOfSlowOutput(t *testing.T) {
	for _, tt := range []struct {
		leaves int64
		state  string
		calls  []string
	}{
		{lingerProgress, "closing", nil},
		{lingerProgress - 1, "closed", []string{"abort"}},
	} {
		d := newEnd(t, true)
		d.refuse = true
		d.write(3 * lingerProgress)
		d.c.Close()
		d.settle()
		d.asked("closing", "send 12288", "resume", "end")
		d.events().Sent(d.c.id, tt.leaves)
		d.asked("closing")
		d.expire(endTime + wheel.Tick*time.Millisecond)
		d.asked(tt.state, tt.calls...)
		if tt.calls != nil {
			d.events().Closed(d.c.id, nil)
			d.over(ErrSlow)
			continue
		}
		d.expire(endTime + wheel.Tick*time.Millisecond) // nothing more has left
		d.asked("closed", "abort")
	}
}

// A conn that lingers is closed when its time is over, and stops reading above its limit.
func TestEndOfLinger(t *testing.T) {
	for _, tt := range []struct {
		sends int
		lasts time.Duration
		calls []string
	}{
		{0, quietLinger, nil},
		{endLinger, endTime, nil},
		{endLinger + 1, quietLinger, []string{"pause"}},
	} {
		d := newEnd(t, true)
		d.c.Close()
		d.settle()
		d.asked("lingering", "resume", "end")
		if tt.sends > 0 {
			d.events().Received(d.c.id, make([]byte, tt.sends))
		}
		d.asked("lingering", tt.calls...)
		d.expire(tt.lasts - wheel.Tick*time.Millisecond)
		d.asked("lingering")
		d.expire(2 * wheel.Tick * time.Millisecond)
		if d.asked("closed", "close"); d.h.got > 0 {
			t.Errorf("a closing conn has delivered %d bytes", d.h.got)
		}
	}
}

// What a paused conn holds is dropped when its close begins.
func TestEndOfHeldInput(t *testing.T) {
	d := newEnd(t, true)
	d.c.Pause()
	d.events().Received(d.c.id, make([]byte, 10))
	d.asked("paused", "pause")
	held := buf.InUse()
	d.c.Close()
	d.settle()
	d.asked("lingering", "resume", "end")
	if now := buf.InUse(); now >= held || d.h.got > 0 {
		t.Errorf("%d blocks held before, %d after; %d bytes delivered", held, now, d.h.got)
	}
}

// An abort drops what is queued, and says why once.
func TestEndByAbort(t *testing.T) {
	why := errors.New("test")
	d := newEnd(t, true)
	d.write(6)
	d.c.Abort(why)
	d.c.Abort(errors.New("another"))
	d.settle()
	d.asked("closed", "abort")
	d.events().Closed(d.c.id, io.ErrUnexpectedEOF)
	d.over(why)
}

// A conn is detached when what is queued has left, unless it is closed first.
func TestEndByDetaching(t *testing.T) {
	d := newEnd(t, true)
	d.refuse = true
	d.write(6)
	d.c.Detach(func(net.Conn, []byte, error) {})
	d.settle()
	d.asked("detaching", "pause", "send 6")
	d.events().Sent(d.c.id, 5)
	d.asked("detaching")
	d.events().Sent(d.c.id, 1)
	d.asked("closed", "detach")
}
