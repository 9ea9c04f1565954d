package tlsloop

import (
	"runtime"
	"sync"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
)

const (
	// maxHandshakes is how many handshakes of one engine are under way at a time. At the limit,
	// handshakes whose first record has arrived wait in order of arrival, until their timeout. Each
	// of them costs that record.
	maxHandshakes = 4096
	// maxBlocking is how many goroutines of one engine run steps and callbacks that may block. At
	// the limit others wait.
	maxBlocking = 256
)

// steppers run the handshakes of an engine. Steps that only compute run on as many goroutines as
// there are processors. Each of these yields before a step, because a step computes for a
// millisecond and the loops have connections to serve. Steps that may block run on other
// goroutines. Idle steppers have no goroutine.
type steppers struct {
	sys  driver.System
	late sync.Mutex // held by onLoop behind the end of a loop

	mu       sync.Mutex
	inFlight int
	waiting  list // for room in flight
	compute  stepQueue
	block    stepQueue
}

// A stepQueue is the work of goroutines of one kind. Handshakes that have begun come first: they
// end sooner and make room.
type stepQueue struct {
	most, running int
	again, fresh  list
}

type steppersKey struct{}

func steppersOf(e *myriad.Engine) *steppers {
	return e.Shared(steppersKey{}, func() any {
		return &steppers{
			sys:     e.System(),
			compute: stepQueue{most: runtime.GOMAXPROCS(0)},
			block:   stepQueue{most: maxBlocking},
		}
	}).(*steppers)
}

// begin takes a new handshake in, now or when there is room.
func (k *steppers) begin(h *handshake) {
	k.mu.Lock()
	if k.inFlight >= maxHandshakes {
		k.waiting.add(h)
		k.mu.Unlock()
		return
	}
	k.inFlight++
	k.mu.Unlock()
	k.push(h)
}

// forget takes h out of those that wait for room, and reports whether it was there.
func (k *steppers) forget(h *handshake) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.waiting.remove(h)
}

// keepWaiting reports whether h waits for a goroutine or for room.
func (k *steppers) keepWaiting(h *handshake) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return h.link.in != nil
}

// leave ends a handshake's time in flight, and begins the one that has waited longest.
func (k *steppers) leave() {
	k.mu.Lock()
	h := k.waiting.take()
	if h == nil {
		k.inFlight--
	}
	k.mu.Unlock()
	if h != nil {
		k.push(h)
	}
}

// push queues h for its next step.
func (k *steppers) push(h *handshake) {
	h.mu.Lock()
	h.calls = h.call != nil
	h.mu.Unlock()
	k.mu.Lock()
	q := &k.compute
	if h.call != nil || h.slow {
		q = &k.block
	}
	if h.next == nil {
		q.fresh.add(h)
	} else {
		q.again.add(h)
	}
	start := q.running < q.most
	if start {
		q.running++
	}
	k.mu.Unlock()
	if start {
		k.sys.Go(func() { k.work(q) })
	}
}

// work runs steps of q until none is left. If a callback ends its goroutine (runtime.Goexit),
// another goroutine replaces it.
func (k *steppers) work(q *stepQueue) {
	done := false
	defer func() {
		if !done {
			k.sys.Go(func() { k.work(q) })
		}
	}()
	for {
		k.mu.Lock()
		h := q.again.take()
		if h == nil {
			h = q.fresh.take()
		}
		if h == nil {
			q.running--
			k.mu.Unlock()
			done = true
			return
		}
		k.mu.Unlock()
		runtime.Gosched()
		h.step()
	}
}

// onLoop runs f on the loop, or here if that has ended: then one f at a time.
func (k *steppers) onLoop(l *myriad.Loop, f func()) {
	err := l.Do(f)
	for ; err == myriad.ErrBusy; err = l.Do(f) {
		runtime.Gosched()
	}
	if err != nil {
		k.late.Lock()
		defer k.late.Unlock()
		f()
	}
}

// A list is handshakes in order of arrival, each in one list at most.
type list struct{ first, last *handshake }

type link struct {
	in         *list
	prev, succ *handshake
}

func (l *list) add(h *handshake) {
	h.link = link{in: l, prev: l.last}
	if l.last != nil {
		l.last.succ = h
	} else {
		l.first = h
	}
	l.last = h
}

func (l *list) take() *handshake {
	h := l.first
	if h != nil {
		l.remove(h)
	}
	return h
}

func (l *list) remove(h *handshake) bool {
	if h.link.in != l {
		return false
	}
	if h.prev != nil {
		h.prev.succ = h.succ
	} else {
		l.first = h.succ
	}
	if h.succ != nil {
		h.succ.prev = h.prev
	} else {
		l.last = h.prev
	}
	h.link = link{}
	return true
}
