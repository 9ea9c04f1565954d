package load

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// grace is how long after the window the replies to its requests are waited for.
const grace = 2 * time.Second

// An evenly sends requests at a constant rate: request k is due at origin + k × interval, whatever
// became of those before it. So there is no queue of late requests, only the number of the next
// one. If it is due and no connection is free, it waits, and its latency includes the wait. When
// the server stops, every request that was due meanwhile tells of it; nothing is omitted.
type evenly struct {
	*driver
	timer    int // a timerfd, because epoll_wait knows milliseconds only
	origin   int64
	interval float64 // ns
	next     int64   // the first request that has not been sent
	free     ring
	open     int64 // requests of the window that are under way
	slow     int   // of a hundred
}

func (d *driver) runOpen(rate float64, slow int) error {
	if rate <= 0 || d.spec.Talk.Requests != 1 {
		return errors.New("a constant rate must be positive, and is for requests that are not pipelined")
	}
	if slow > 0 && len(d.spec.Talk.Slow) == 0 {
		return errors.New("there is no slow request")
	}
	timer, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("timerfd_create: %w", err)
	}
	defer unix.Close(timer)
	// Edge-triggered, so that it need not be read.
	if err := unix.EpollCtl(d.ep, unix.EPOLL_CTL_ADD, timer, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET,
		Fd: -1}); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	origin := min(d.now(), d.window.start) // an order that comes late omits nothing either
	e := &evenly{driver: d, timer: timer, origin: origin, interval: 1e9 / rate, free: newRing(d.conns), slow: slow}
	d.replied = e.answered
	if err := d.loop(e.turn); err != nil {
		return err
	}
	return e.account()
}

func (e *evenly) due(k int64) int64 { return e.origin + int64(float64(k)*e.interval) }

// counts reports whether a request that was due then is one of the window's.
func (e *evenly) counts(due int64) bool { return due >= e.window.start && due < e.window.end }

func (e *evenly) answered(c *conn, now int64) error {
	if e.counts(c.since) {
		if !c.slow {
			e.window.took(now - c.since)
		}
		e.open--
	}
	e.free.put(c)
	return e.sendDue(now)
}

func (e *evenly) sendDue(now int64) error {
	for e.free.n > 0 {
		due := e.due(e.next)
		if due > now || due >= e.window.end {
			return nil
		}
		c := e.free.take()
		if e.counts(due) {
			e.open++
		}
		send := e.send
		if e.isSlow(e.next) {
			send = e.sendSlow
		}
		e.next++
		if err := send(c, due); err != nil {
			return err
		}
	}
	return nil
}

// isSlow spreads the slow requests irregularly, and the same way in every run: by a multiplicative
// hash of their number.
func (e *evenly) isSlow(k int64) bool {
	return e.slow > 0 && int(uint64(k)*0x9e3779b97f4a7c15>>32%100) < e.slow
}

func (e *evenly) turn(now int64) (time.Duration, bool, error) {
	e.window.tell(now)
	e.noteLate(now)
	if err := e.sendDue(now); err != nil {
		return 0, false, err
	}
	due := e.due(e.next)
	all := due >= e.window.end
	if e.window.closed != 0 && (all && e.open == 0 || now > e.window.end+int64(grace)) {
		return 0, false, nil
	}
	if !all && e.free.n > 0 {
		at := unix.NsecToTimespec(max(due, 1))
		if err := unix.TimerfdSettime(e.timer, unix.TFD_TIMER_ABSTIME, &unix.ItimerSpec{Value: at}, nil); err != nil {
			return 0, false, fmt.Errorf("timerfd_settime: %w", err)
		}
	}
	return until(e.window.mark, now), true, nil
}

// noteLate notes how late the next request is, although a connection is free.
func (e *evenly) noteLate(now int64) {
	if due := e.due(e.next); e.free.n > 0 && due <= now && e.counts(due) {
		e.window.left(now - due)
	}
}

// account adds what was due in the window and has not been answered: requests under way, and those
// that were never sent.
func (e *evenly) account() error {
	now := e.now()
	for i := range e.conns {
		if c := &e.conns[i]; c.waiting > 0 && e.counts(c.since) {
			if !c.slow {
				e.window.took(now - c.since)
			}
			e.window.unanswered++
		}
	}
	for ; e.due(e.next) < e.window.end; e.next++ {
		if due := e.due(e.next); e.counts(due) {
			e.window.took(now - due)
			e.window.unanswered++
		}
	}
	return nil
}

// A ring holds the free connections, the one that has been free for longest first, so that all of
// them are used.
type ring struct {
	conns    []*conn
	first, n int
}

func newRing(conns []conn) ring {
	r := ring{conns: make([]*conn, len(conns)), n: len(conns)}
	for i := range conns {
		r.conns[i] = &conns[i]
	}
	return r
}

func (r *ring) put(c *conn) {
	r.conns[(r.first+r.n)%len(r.conns)] = c
	r.n++
}

func (r *ring) take() *conn {
	c := r.conns[r.first]
	r.first = (r.first + 1) % len(r.conns)
	r.n--
	return c
}
