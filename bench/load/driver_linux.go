package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/bench/proc"
)

const (
	maxEvents = 512
	inputSize = 256 << 10
	patience  = 20 * time.Second // without any reply, when there should be some
	late      = 5 * time.Second  // how long after the last publication its deliveries may come
)

// A driver is one epoll loop on one goroutine.
type driver struct {
	spec   Spec
	ep     int
	conns  []conn
	events []unix.EpollEvent
	input  []byte

	scratch []byte // of request

	began time.Time // with monotonic, the same moment on the clock that processes share
	mono  int64
	late  time.Duration

	window *window
	// replied is called when c has received a complete, correct reply. The running mode sets it.
	replied func(c *conn, now int64) error
	counted *Talk // if not nil, only its replies count
}

type conn struct {
	fd      int
	waiting int   // for so many replies
	since   int64 // when their requests were sent, or were to be sent
	tail    []byte
	talk    *Talk
	slow    bool // the request was
	joining bool // while it is being opened: the head has come, Joined has not
	secure  *secured
	stream  uint32 // the last that was opened, in the framing Streams
}

// now is the monotonic clock without a system call.
func (d *driver) now() int64 { return d.mono + int64(time.Since(d.began)) }

// close resets the connections, so that no port stays behind in TIME_WAIT.
func (d *driver) close() {
	for i := range d.conns {
		if d.conns[i].fd >= 0 {
			_ = unix.SetsockoptLinger(d.conns[i].fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			unix.Close(d.conns[i].fd)
		}
	}
	unix.Close(d.ep)
}

// send writes the request. It always fits, because nothing else is unread by the server then.
func (d *driver) send(c *conn, since int64) error {
	c.waiting, c.since, c.slow = c.talk.Requests, since, false
	p, err := d.request(c)
	if err != nil {
		return err
	}
	return d.write(c, p)
}

func (d *driver) sendSlow(c *conn, since int64) error {
	c.waiting, c.since, c.slow = 1, since, true
	return d.write(c, c.talk.Slow)
}

func (d *driver) write(c *conn, p []byte) error {
	if c.secure != nil {
		return c.secure.write(p)
	}
	n, err := unix.Write(c.fd, p)
	if err != nil {
		return fmt.Errorf("sending a request: %w", err)
	}
	if n < len(p) {
		return fmt.Errorf("the kernel took only %d bytes of a request of %d: the server does not read", n, len(p))
	}
	return nil
}

// loop handles what arrives until goOn says no. Before each wait goOn is told the time, and says
// how long to wait at most.
func (d *driver) loop(goOn func(now int64) (wait time.Duration, more bool, err error)) error {
	alive := d.now()
	for {
		now := d.now()
		wait, more, err := goOn(now)
		if err != nil || !more {
			return err
		}
		n, err := unix.EpollWait(d.ep, d.events, int((wait+time.Millisecond-1)/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("epoll_wait: %w", err)
		}
		for _, e := range d.events[:max(n, 0)] {
			if e.Fd < 0 { // the timer of Open
				continue
			}
			if err := d.receive(&d.conns[e.Fd]); err != nil {
				return err
			}
			alive = now
		}
		if now-alive > int64(patience) {
			return fmt.Errorf("the server has said nothing for %v", patience)
		}
	}
}

// receive reads once and takes the whole replies off what has come.
func (d *driver) receive(c *conn) error {
	n, err := d.read(c)
	if n == 0 {
		return err
	}
	now := d.now()
	d.window.tell(now)
	data := d.input[:n]
	if len(c.tail) > 0 {
		c.tail = append(c.tail, data...)
		data = c.tail
	}
	rest, err := d.takeAll(c, data, now)
	if err != nil {
		return err
	}
	c.tail = append(c.tail[:0], rest...) // moves towards the front of itself
	return nil
}

// takeAll removes the complete replies from data and returns the rest.
func (d *driver) takeAll(c *conn, data []byte, now int64) ([]byte, error) {
	want := &c.talk.Reply
	take := func(reply []byte) error { return d.take(c, reply, now) }
	for len(data) > 0 {
		f, err := want.Framing.next(data, want.Size)
		if err == errPartial {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := f.each(data, want.Size, take); err != nil {
			return nil, err
		}
		data = data[f.size:]
	}
	return data, nil
}

// read takes what has come into d.input. If that is nothing, n is 0 without an error.
func (d *driver) read(c *conn) (n int, err error) {
	if c.secure != nil {
		n, err = c.secure.read(d.input)
	} else {
		n, err = unix.Read(c.fd, d.input)
	}
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return 0, nil
	case err != nil && !errors.Is(err, io.EOF):
		return 0, fmt.Errorf("reading a reply: %w", err)
	case n <= 0:
		return 0, errors.New("the server closed a connection")
	}
	return n, nil
}

func (d *driver) take(c *conn, reply []byte, now int64) error {
	want := &c.talk.Reply
	if !bytes.HasPrefix(reply, want.Prefix) || !bytes.HasSuffix(reply, want.Suffix) {
		return fmt.Errorf("a reply of %.200q is not like %.100q ... %.100q", reply, want.Prefix, want.Suffix)
	}
	if c.waiting == 0 {
		return fmt.Errorf("an unsolicited reply: %.200q", reply)
	}
	c.waiting--
	if d.window.running() && (d.counted == nil || c.talk == d.counted) {
		d.window.replies++
	}
	return d.replied(c, now)
}

// until is the time to wait for a moment, at most a tenth of a second.
func until(moment, now int64) time.Duration {
	return min(max(time.Duration(moment-now), 0), 100*time.Millisecond)
}

func newDriver(spec Spec) (*driver, error) {
	if spec.Conns < 1 || spec.Talk.Requests < 1 && spec.Publishers < 1 || spec.Talk.Reply.Size < 1 &&
		!spec.Talk.Reply.Framing.changes() {
		return nil, errors.New("a spec needs connections, a request and a reply")
	}
	if spec.Publishers > 0 && spec.Talk.Publication == nil {
		return nil, errors.New("there is nothing for publishers to say")
	}
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	d := &driver{
		spec: spec, ep: ep, conns: make([]conn, spec.Conns+spec.Publishers),
		events: make([]unix.EpollEvent, maxEvents), input: make([]byte, inputSize),
		began: time.Now(), mono: proc.Monotonic(), late: late, window: &window{mark: 1 << 62},
	}
	for i := range d.conns {
		d.conns[i].fd, d.conns[i].talk = -1, &d.spec.Talk
		if i >= spec.Conns {
			d.conns[i].talk = d.spec.Talk.Publication
		}
	}
	return d, nil
}
