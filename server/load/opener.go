package load

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// A dialer has one connection at a time, which is opened again when it is lost.
type dialer interface {
	// open opens the connection. It is called for one attempt at a time, and may block.
	open(w *worker) error
	// dialing is the opener's own memory of the dialer.
	dialing() *dialState
}

// A dialState is what the opener knows of a dialer. Its methods are called by the attempt that
// opens the connection, and then by the connection's callbacks: never by two goroutines at a time.
type dialState uint8

// Two bits of a dialState. The others count attempts that have failed in a row.
const (
	wasOpen      dialState = 1 << 7
	wasIdle      dialState = 1 << 6
	mostFailures           = wasIdle - 1
)

// opened notes that the connection was open.
func (s *dialState) opened() { *s |= wasOpen }

// succeeded forgets failures: the server has taken the connection in.
func (s *dialState) succeeded() { *s = wasOpen }

// idled notes that the server has ended a connection that had nothing to do. Servers do so after a
// time, and it says nothing of how much they have to do. So it is opened again without a wait, to
// be there when something is due.
func (s *dialState) idled() { *s = wasOpen | wasIdle }

// failed notes an attempt without success.
func (s *dialState) failed() { *s = *s&wasOpen | min(s.failures()+1, mostFailures) }

func (s dialState) failures() dialState { return s & mostFailures }

func (s dialState) hasBeenOpen() bool { return s&wasOpen != 0 }

// The wait before a connection is opened again is random, from nothing to firstBackoff. Each
// failure in a row doubles its bound, up to lastBackoff. Clients of the Centrifuge protocol wait so
// too: what was lost at one moment comes back spread over a time.
const (
	firstBackoff = 400 * time.Millisecond
	lastBackoff  = 20 * time.Second
)

// backoff is the longest wait after so many failures in a row.
func backoff(failures dialState) time.Duration {
	return min(firstBackoff<<min(failures, 10), lastBackoff)
}

// An opener decides when connections are opened: a few at a time, and with a pacer only as fast as
// the server keeps up. A connection that waits for its next attempt takes no place of those that
// are being opened.
type opener struct {
	mu      sync.Mutex
	places  int // for connections that are being opened
	pace    *pacer
	fresh   func() dialer // the next that was never tried; nil: there is none
	waiting waitList
	settled bool // see settle

	changed chan struct{} // has room for one
}

func newOpener(places int, pace *pacer, fresh func() dialer) *opener {
	return &opener{places: places, pace: pace, fresh: fresh, changed: make(chan struct{}, 1)}
}

// take returns the dialer whose attempt may begin now, or nil. Then it returns when to ask again,
// at the latest; zero: only after a change. Those that have been tried before come first.
func (o *opener) take(now time.Time) (d dialer, again time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.places == 0 {
		return nil, time.Time{}
	}
	if len(o.waiting) > 0 && !o.waiting[0].at.After(now) {
		if at := o.paced(); at.After(now) {
			return nil, at
		}
		d = heap.Pop(&o.waiting).(waiter).dialer
	} else if o.fresh != nil {
		if at := o.paced(); at.After(now) {
			return nil, at
		}
		if d = o.fresh(); d == nil {
			o.fresh = nil
		}
	}
	if d == nil {
		if len(o.waiting) > 0 {
			again = o.waiting[0].at
		}
		return nil, again
	}
	o.places--
	if o.pace != nil {
		o.pace.begin(now)
	}
	return d, time.Time{}
}

// paced is when the pacer lets the next attempt begin.
func (o *opener) paced() time.Time {
	if o.pace == nil {
		return time.Time{}
	}
	return o.pace.next
}

// ended gives an attempt's place back. A dialer whose attempt has failed waits for the next one.
func (o *opener) ended(d dialer, began, now time.Time, err error) {
	o.mu.Lock()
	o.places++
	if o.pace != nil {
		o.pace.ended(began, now, err != nil, o.places == 1)
	}
	o.mu.Unlock()
	if err != nil {
		d.dialing().failed()
		o.again(d, now)
		return
	}
	o.wake()
}

// lost tells the pacer that the server has ended a connection.
func (o *opener) lost(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pace != nil {
		o.pace.lost(now)
	}
}

// again has a dialer without a connection wait for its next attempt. Any goroutine; it does not
// block.
func (o *opener) again(d dialer, now time.Time) {
	s, at := d.dialing(), now
	if *s&wasIdle == 0 {
		at = now.Add(rand.N(backoff(s.failures())))
	}
	o.mu.Lock()
	if !o.settled || s.hasBeenOpen() {
		heap.Push(&o.waiting, waiter{at, d})
	}
	o.mu.Unlock()
	o.wake()
}

// settle gives up connections that were never open. From then on only those that are lost are
// opened again.
func (o *opener) settle() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.settled, o.fresh = true, nil
	o.waiting = slices.DeleteFunc(o.waiting, func(w waiter) bool { return !w.dialer.dialing().hasBeenOpen() })
	heap.Init(&o.waiting)
}

// run begins attempts by launch until ctx ends. launch does not block, and calls ended later.
func (o *opener) run(ctx context.Context, launch func(d dialer)) {
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for ctx.Err() == nil {
		d, again := o.take(time.Now())
		if d != nil {
			launch(d)
			continue
		}
		alarm.Stop()
		if !again.IsZero() {
			alarm.Reset(time.Until(again))
		}
		select {
		case <-o.changed:
		case <-alarm.C:
		case <-ctx.Done():
		}
	}
}

func (o *opener) wake() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// A waiter is a dialer that waits until a moment.
type waiter struct {
	at     time.Time
	dialer dialer
}

// A waitList is a heap, the earliest first.
type waitList []waiter

func (l waitList) Len() int           { return len(l) }
func (l waitList) Less(i, j int) bool { return l[i].at.Before(l[j].at) }
func (l waitList) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *waitList) Push(v any)        { *l = append(*l, v.(waiter)) }
func (l *waitList) Pop() any {
	last := len(*l) - 1
	v := (*l)[last]
	(*l)[last] = waiter{}
	*l = (*l)[:last]
	return v
}
