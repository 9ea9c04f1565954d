package workers

// A ring is the queue of tasks. It grows by doubling; its owner keeps it below a limit.
type ring struct {
	slots []func() // a power of two
	head  int
	n     int
}

const (
	firstRing = 64
	keptRing  = 1024 // slots that an empty ring keeps when the pool goes idle
)

func (r *ring) push(f func()) {
	if r.n == len(r.slots) {
		r.grow()
	}
	r.slots[(r.head+r.n)&(len(r.slots)-1)] = f
	r.n++
}

func (r *ring) pop() func() {
	f := r.slots[r.head]
	r.slots[r.head] = nil
	r.head = (r.head + 1) & (len(r.slots) - 1)
	r.n--
	return f
}

func (r *ring) grow() {
	slots := make([]func(), max(firstRing, 2*len(r.slots)))
	n := copy(slots, r.slots[r.head:])
	copy(slots[n:], r.slots[:r.head])
	r.slots, r.head = slots, 0
}

// trim gives the memory of a burst back.
func (r *ring) trim() {
	if r.n == 0 && len(r.slots) > keptRing {
		*r = ring{}
	}
}

// A line is the goroutines that wait in Go, in order. Its length is bounded by the callers: each is a goroutine of theirs.
type line struct {
	first, last *ticket
	n           int
}

// A ticket is one place in the line. decided is closed once err is final and the ticket is out of the line; not if its owner
// leaves by himself.
type ticket struct {
	f          func()
	err        error
	decided    chan struct{}
	prev, next *ticket
	waiting    bool
}

func (l *line) join(f func()) *ticket {
	t := &ticket{f: f, decided: make(chan struct{}), prev: l.last, waiting: true}
	if l.last == nil {
		l.first = t
	} else {
		l.last.next = t
	}
	l.last = t
	l.n++
	return t
}

// leave takes t out of the line and says whether it was still in it.
func (l *line) leave(t *ticket) bool {
	if !t.waiting {
		return false
	}
	if t.prev == nil {
		l.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next, t.waiting = nil, nil, false
	l.n--
	return true
}

func (l *line) decide(t *ticket, err error) {
	l.leave(t)
	t.err = err
	close(t.decided)
}
