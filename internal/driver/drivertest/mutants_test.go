package drivertest

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// A mutant is a driver with one mistake. Each mistake is one that an author could make, and breaks
// a sentence of the contract.
type mutant struct {
	name  string
	spoil func(r *relay)
}

var receiveMutants = []mutant{
	{"the last byte before FIN is lost", func(r *relay) {
		held := map[driver.ID][]byte{}
		r.received = func(id driver.ID, p []byte) {
			if tail := held[id]; tail != nil {
				r.extra++
				r.ev.Received(id, slices.Clip(tail))
			}
			held[id] = slices.Clone(p[len(p)-1:])
			if len(p) > 1 {
				r.ev.Received(id, p[:len(p)-1:len(p)-1])
				return
			}
			r.extra--
		}
	}},
	{"a byte in the middle is lost", func(r *relay) {
		third := every(3)
		r.received = func(id driver.ID, p []byte) {
			if len(p) > 1 && third() {
				p = p[1:]
			}
			r.ev.Received(id, p)
		}
	}},
	{"bytes come twice", func(r *relay) {
		third := every(3)
		r.received = func(id driver.ID, p []byte) {
			if third() && len(p) < readBuffer/2 {
				p = slices.Clip(append(slices.Clone(p), p...))
			}
			r.ev.Received(id, p)
		}
	}},
	{"two receives change places", func(r *relay) {
		third := every(3)
		r.received = func(id driver.ID, p []byte) {
			if third() && len(p) > 1 {
				half := len(p) / 2
				p = slices.Clip(append(slices.Clone(p[half:]), p[:half]...))
			}
			r.ev.Received(id, p)
		}
	}},
	{"capacity larger than length", func(r *relay) {
		r.received = func(id driver.ID, p []byte) { r.ev.Received(id, append(make([]byte, 0, len(p)+8), p...)) }
	}},
	{"an empty receive at FIN", func(r *relay) {
		r.ended = func(id driver.ID) {
			r.extra++
			r.ev.Received(id, []byte{})
			r.ev.Ended(id)
		}
	}},
	{"Ended before the last byte", func(r *relay) {
		r.received = func(id driver.ID, p []byte) {
			if bytes.HasPrefix(p, []byte("last words")) {
				r.extra++
				r.ev.Ended(id)
			}
			r.ev.Received(id, p)
		}
	}},
	{"Ended twice", func(r *relay) {
		r.ended = func(id driver.ID) {
			r.extra++
			r.ev.Ended(id)
			r.ev.Ended(id)
		}
	}},
	{"Ended is swallowed", func(r *relay) { r.ended = func(driver.ID) { r.extra-- } }},
	{"Pause does nothing", func(r *relay) { r.pause = func(driver.ID) {} }},
	{"Resume does nothing", func(r *relay) { r.resume = func(driver.ID) {} }},
	{"a reset is not reported while paused", func(r *relay) {
		paused := map[driver.ID]bool{}
		r.pause = func(id driver.ID) { paused[id] = true; r.Driver.Pause(id) }
		r.resume = func(id driver.ID) { paused[id] = false; r.Driver.Resume(id) }
		r.closed = func(id driver.ID, err error) {
			if err != nil && paused[id] {
				r.extra--
				return
			}
			r.ev.Closed(id, err)
		}
	}},
	{"two receive buffers in one Poll", func(r *relay) {
		r.poll = func(wait time.Duration) (int, error) {
			n, err := r.pollDriver(wait)
			if err != nil {
				return n, err
			}
			m, err := r.pollDriver(0)
			return n + m, err
		}
	}},
	{"the fifth connection is not read", func(r *relay) {
		heard := map[driver.ID]int{}
		r.attach = func(s driver.Socket) (driver.ID, error) {
			id, err := r.Driver.Attach(s)
			if heard[id] = 0; len(heard) == 5 {
				r.Driver.Pause(id)
			}
			return id, err
		}
	}},
}

var sendMutants = []mutant{
	{"Sent is counted twice", func(r *relay) {
		r.sent = func(id driver.ID, n int64) {
			r.extra++
			r.ev.Sent(id, n)
			r.ev.Sent(id, n)
		}
	}},
	{"a Sent is swallowed", func(r *relay) {
		fourth := every(4)
		r.sent = func(id driver.ID, n int64) {
			if fourth() {
				r.extra--
				return
			}
			r.ev.Sent(id, n)
		}
	}},
	{"Sent is short by one", func(r *relay) {
		r.sent = func(id driver.ID, n int64) { r.ev.Sent(id, max(1, n-1)) }
	}},
	{"Sent of nothing", func(r *relay) {
		r.sent = func(id driver.ID, n int64) {
			r.extra++
			r.ev.Sent(id, 0)
			r.ev.Sent(id, n)
		}
	}},
	{"Send says that everything is sent", func(r *relay) {
		r.send = func(id driver.ID, c *buf.Chain) int64 { r.Driver.Send(id, c); return 0 }
	}},
	{"a tail of output is lost", func(r *relay) {
		fifth := every(5)
		r.send = func(id driver.ID, c *buf.Chain) int64 {
			if c.Len() > 1 && fifth() {
				var head, tail buf.Chain
				c.Cut(c.Len()-1, &head)
				c.Move(&tail)
				tail.Release()
				return r.Driver.Send(id, &head)
			}
			return r.Driver.Send(id, c)
		}
	}},
	{"Send leaves a block behind", func(r *relay) {
		fifth := every(5)
		r.send = func(id driver.ID, c *buf.Chain) int64 {
			if c.Len() > 0 && fifth() {
				c.Share(new(buf.Chain))
			}
			return r.Driver.Send(id, c)
		}
	}},
	{"Send on a stale id keeps the chain", func(r *relay) {
		over := map[driver.ID]bool{}
		r.closed = func(id driver.ID, err error) { over[id] = true; r.ev.Closed(id, err) }
		r.send = func(id driver.ID, c *buf.Chain) int64 {
			if over[id] {
				return 0
			}
			return r.Driver.Send(id, c)
		}
	}},
	{"Send on a stale id keeps a reference", func(r *relay) {
		over := map[driver.ID]bool{}
		r.closed = func(id driver.ID, err error) { over[id] = true; r.ev.Closed(id, err) }
		r.send = func(id driver.ID, c *buf.Chain) int64 {
			if over[id] {
				c.Share(new(buf.Chain))
			}
			return r.Driver.Send(id, c)
		}
	}},
	{"CloseWrite is lost", func(r *relay) { r.closeWrite = func(driver.ID) {} }},
	{"CloseWrite drops the queue", func(r *relay) {
		left := map[driver.ID]int64{}
		r.send = func(id driver.ID, c *buf.Chain) int64 {
			n := r.Driver.Send(id, c)
			left[id] += n
			return n
		}
		r.sent = func(id driver.ID, n int64) { left[id] -= n; r.ev.Sent(id, n) }
		r.closeWrite = func(id driver.ID) {
			if left[id] > 0 {
				r.Driver.Abort(id)
				return
			}
			r.Driver.CloseWrite(id)
		}
	}},
	{"CloseWrite closes both ways", func(r *relay) {
		r.closeWrite = func(id driver.ID) { r.Driver.CloseWrite(id); r.Driver.Pause(id) }
	}},
}

var closeMutants = []mutant{
	{"Closed twice", func(r *relay) {
		r.closed = func(id driver.ID, err error) {
			r.extra++
			r.ev.Closed(id, err)
			r.ev.Closed(id, err)
		}
	}},
	{"Closed never", func(r *relay) {
		fifth := every(5)
		r.closed = func(id driver.ID, err error) {
			if fifth() {
				r.extra--
				return
			}
			r.ev.Closed(id, err)
		}
	}},
	{"Closed from inside Close", func(r *relay) {
		r.close = func(id driver.ID) {
			r.Driver.Close(id)
			if r.ev != nil {
				r.ev.Closed(id, nil)
			}
		}
	}},
	{"Close reports an error", func(r *relay) {
		r.closed = func(id driver.ID, err error) { r.ev.Closed(id, cmp(err, io.ErrClosedPipe)) }
	}},
	{"a reset is reported as an orderly close", func(r *relay) {
		r.closed = func(id driver.ID, _ error) { r.ev.Closed(id, nil) }
	}},
	{"Closed when both sides have ended", func(r *relay) {
		finished := map[driver.ID]bool{}
		r.closeWrite = func(id driver.ID) { finished[id] = true; r.Driver.CloseWrite(id) }
		r.ended = func(id driver.ID) {
			r.ev.Ended(id)
			if finished[id] {
				r.Driver.Close(id)
			}
		}
	}},
	{"data after Closed", func(r *relay) {
		r.closed = func(id driver.ID, err error) {
			r.ev.Closed(id, err)
			r.extra++
			r.ev.Received(id, []byte("x")[:1:1])
		}
	}},
	{"an event of a connection that is gone", func(r *relay) {
		var gone driver.ID
		r.closed = func(id driver.ID, err error) { gone = id; r.ev.Closed(id, err) }
		r.received = func(id driver.ID, p []byte) {
			if gone != 0 {
				r.extra++
				r.ev.Sent(gone, 1)
			}
			r.ev.Received(id, p)
		}
	}},
	{"events of the batch after Close", batchAfterClose},
	{"generations stand still", generationsStandStill},
	{"Abort closes in order", func(r *relay) { r.abort = func(id driver.ID) { r.Driver.Close(id) } }},
	{"Close resets", func(r *relay) { r.close = func(id driver.ID) { r.Driver.Abort(id) } }},
	{"Close is forgotten now and then", func(r *relay) {
		seventh := every(7)
		r.close = func(id driver.ID) {
			if !seventh() {
				r.Driver.Close(id)
			}
		}
	}},
	{"ids of another loop", func(r *relay) {
		r.attach = func(s driver.Socket) (driver.ID, error) {
			id, err := r.Driver.Attach(s)
			return driver.MakeID(id.Loop()+1, id.Slot(), id.Generation()), err
		}
	}},
	{"slots are not used again", func(r *relay) {
		next := uint32(0)
		translate(r, func(inner driver.ID) driver.ID {
			next++
			return driver.MakeID(inner.Loop(), next, 1)
		})
	}},
}

var otherMutants = []mutant{
	{"a wake is dropped", func(r *relay) {
		var n atomic.Int64
		r.wake = func() {
			if n.Add(1)%7 != 0 {
				r.Driver.Wake()
			}
		}
	}},
	{"a wake before Poll is forgotten", func(r *relay) {
		polling := atomic.Bool{}
		r.wake = func() {
			if polling.Load() {
				r.Driver.Wake()
			}
		}
		r.poll = func(wait time.Duration) (int, error) {
			polling.Store(true)
			defer polling.Store(false)
			return r.pollDriver(wait)
		}
	}},
	{"Poll never waits", func(r *relay) {
		r.poll = func(time.Duration) (int, error) { return r.pollDriver(0) }
	}},
	{"Poll miscounts", func(r *relay) {
		r.poll = func(wait time.Duration) (int, error) {
			n, err := r.pollDriver(wait)
			return min(n, 1), err
		}
	}},
	{"StopAccept does nothing", func(r *relay) { r.stopAccept = func(driver.ID) {} }},
	{"ResumeAccept does nothing", func(r *relay) { r.resumeAccept = func(driver.ID) {} }},
	{"CloseListener goes unreported", func(r *relay) {
		listeners := map[driver.ID]bool{}
		r.closeListener = func(id driver.ID) { listeners[id] = true; r.Driver.CloseListener(id) }
		r.closed = func(id driver.ID, err error) {
			if listeners[id] {
				r.extra--
				return
			}
			r.ev.Closed(id, err)
		}
	}},
	{"accepting goes on after it failed", func(r *relay) {
		r.acceptFailed = func(id driver.ID, err error) {
			r.ev.AcceptFailed(id, err)
			r.Driver.ResumeAccept(id)
		}
	}},
	{"a failure to accept is not told", func(r *relay) {
		r.acceptFailed = func(id driver.ID, err error) {
			r.extra--
			r.Driver.ResumeAccept(id)
		}
	}},
	{"an accepted peer is lost", func(r *relay) {
		tenth := every(10)
		r.accepted = func(id driver.ID, s driver.Socket) {
			if tenth() {
				r.extra--
				s.Close()
				return
			}
			r.ev.Accepted(id, s)
		}
	}},
	{"Dialed twice", func(r *relay) {
		r.dialed = func(id driver.ID, local driver.Addr) {
			r.extra++
			r.ev.Dialed(id, local)
			r.ev.Dialed(id, local)
		}
	}},
	{"Dialed from the wrong address", func(r *relay) {
		r.dialed = func(id driver.ID, _ driver.Addr) { r.ev.Dialed(id, driver.AddrFrom4([4]byte{127, 0, 0, 1}, 1)) }
	}},
	{"DialFailed and then Closed", func(r *relay) {
		r.dialFailed = func(id driver.ID, err error) {
			r.extra++
			r.ev.DialFailed(id, err)
			r.ev.Closed(id, err)
		}
	}},
	{"Closed instead of DialFailed", func(r *relay) {
		r.dialFailed = func(id driver.ID, err error) { r.ev.Closed(id, err) }
	}},
	{"Detach drops the queue", func(r *relay) {
		r.detach = func(id driver.ID) error {
			if err := r.Driver.Detach(id); !errors.Is(err, driver.ErrNotIdle) {
				return err
			}
			return nil
		}
	}},
	{"Detached and then Closed", func(r *relay) {
		r.detached = func(id driver.ID, s driver.Socket) {
			r.extra++
			r.ev.Detached(id, s)
			r.ev.Closed(id, nil)
		}
	}},
	{"what is left of a batch is lost when an event does not return", func(r *relay) {
		leftovers(r, func(driver.ID, []byte) { r.extra-- })
	}},
	{"what is left of a batch comes twice when an event does not return", func(r *relay) {
		leftovers(r, func(id driver.ID, p []byte) {
			r.extra++
			defer r.ev.Received(id, p)
			r.ev.Received(id, p)
		})
	}},
	{"Detach closes the socket", func(r *relay) {
		r.detached = func(id driver.ID, s driver.Socket) { s.Close(); r.ev.Detached(id, s) }
	}},
}

func cmp(err, other error) error {
	if err == nil {
		return other
	}
	return err
}

// leftovers has another way to receive in a Poll that follows one which did not return.
func leftovers(r *relay, received func(id driver.ID, p []byte)) {
	inPoll, after := false, false
	r.poll = func(wait time.Duration) (int, error) {
		after, inPoll = inPoll, true
		n, err := r.pollDriver(wait)
		inPoll = false
		return n, err
	}
	r.received = func(id driver.ID, p []byte) {
		if after {
			received(id, p)
			return
		}
		r.ev.Received(id, p)
	}
}

// batchAfterClose collects the receives of a Poll and delivers them at its end, whatever has been
// closed meanwhile.
func batchAfterClose(r *relay) {
	type receive struct {
		id driver.ID
		p  []byte
	}
	var batch []receive
	r.received = func(id driver.ID, p []byte) { batch = append(batch, receive{id, slices.Clip(slices.Clone(p))}) }
	r.poll = func(wait time.Duration) (int, error) {
		n, err := r.pollDriver(wait)
		for _, x := range batch {
			r.ev.Received(x.id, x.p)
		}
		batch = batch[:0]
		return n, err
	}
}

// generationsStandStill gives every user of a slot the same id.
func generationsStandStill(r *relay) {
	translate(r, func(inner driver.ID) driver.ID { return driver.MakeID(inner.Loop(), inner.Slot(), 1) })
}

// translate gives attached connections other ids.
func translate(r *relay, outer func(inner driver.ID) driver.ID) {
	in, out := map[driver.ID]driver.ID{}, map[driver.ID]driver.ID{}
	inner := func(id driver.ID) driver.ID {
		if x, ok := in[id]; ok {
			return x
		}
		return id
	}
	given := func(id driver.ID) driver.ID {
		if x, ok := out[id]; ok {
			return x
		}
		return id
	}
	r.attach = func(s driver.Socket) (driver.ID, error) {
		id, err := r.Driver.Attach(s)
		x := outer(id)
		in[x], out[id] = id, x
		return x, err
	}
	d := r.Driver
	r.send = func(id driver.ID, c *buf.Chain) int64 { return d.Send(inner(id), c) }
	r.pause = func(id driver.ID) { d.Pause(inner(id)) }
	r.resume = func(id driver.ID) { d.Resume(inner(id)) }
	r.close = func(id driver.ID) { d.Close(inner(id)) }
	r.abort = func(id driver.ID) { d.Abort(inner(id)) }
	r.closeWrite = func(id driver.ID) { d.CloseWrite(inner(id)) }
	r.detach = func(id driver.ID) error { return d.Detach(inner(id)) }
	r.received = func(id driver.ID, p []byte) { r.ev.Received(given(id), p) }
	r.ended = func(id driver.ID) { r.ev.Ended(given(id)) }
	r.sent = func(id driver.ID, n int64) { r.ev.Sent(given(id), n) }
	r.closed = func(id driver.ID, err error) { r.ev.Closed(given(id), err) }
	r.detached = func(id driver.ID, s driver.Socket) { r.ev.Detached(given(id), s) }
}

// A moveMutant is a System with one mistake.
type moveMutant struct {
	name  string
	spoil func(m *driver.Moves)
}

var moveMutants = []moveMutant{
	{"a share is the socket itself", func(m *driver.Moves) {
		m.Share = func(s driver.Socket) (driver.Socket, error) { return s, nil }
	}},
	{"Share gives the socket on", func(m *driver.Moves) {
		share := m.Share
		m.Share = func(s driver.Socket) (driver.Socket, error) {
			second, err := share(s)
			if err == nil {
				err = s.Close()
			}
			return second, err
		}
	}},
	{"a share shares with another one that stays open", func(m *driver.Moves) {
		share := m.Share
		m.Share = func(s driver.Socket) (driver.Socket, error) {
			if _, err := share(s); err != nil {
				return nil, err
			}
			return share(s)
		}
	}},
	{"what cannot be shared is not told", func(m *driver.Moves) {
		share := m.Share
		m.Share = func(s driver.Socket) (driver.Socket, error) {
			second, _ := share(s)
			return second, nil
		}
	}},
	{"Unread invents bytes", func(m *driver.Moves) {
		m.Unread = func(driver.Socket) []byte { return []byte("x") }
	}},
}
