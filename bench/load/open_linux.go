package load

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// wave is how many connections are being opened at once: fewer than any server's backlog.
const wave = 256

// open connects, and says Hello on every connection.
func open(spec Spec) (*driver, error) {
	to, err := addressOf(spec.Addr)
	if err != nil {
		return nil, err
	}
	publish := to
	if p := spec.Talk.Publication; p != nil && p.Addr != "" {
		if publish, err = addressOf(p.Addr); err != nil {
			return nil, err
		}
	}
	d, err := newDriver(spec)
	if err != nil {
		return nil, err
	}
	o := &opening{driver: d, to: to, publish: publish}
	if spec.Talk.TLS {
		return d, o.secure()
	}
	return d, o.run()
}

func addressOf(text string) (*unix.SockaddrInet4, error) {
	addr, err := netip.ParseAddrPort(text)
	if err != nil || !addr.Addr().Is4() {
		return nil, fmt.Errorf("%q is not an IPv4 address and port", text)
	}
	return &unix.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())}, nil
}

// An opening has begun connections up to begun; stands of them have been opened.
type opening struct {
	*driver
	to, publish   *unix.SockaddrInet4 // publish is for publishers
	begun, stands int
}

func (o *opening) run() error {
	for lastNews := time.Now(); o.stands < len(o.conns); {
		for o.begun < len(o.conns) && o.begun-o.stands < wave {
			if err := o.begin(o.begun); err != nil {
				return fmt.Errorf("connection %d of %d: %w", o.begun+1, len(o.conns), err)
			}
			o.begun++
		}
		n, err := unix.EpollWait(o.ep, o.events, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("epoll_wait: %w", err)
		}
		for _, e := range o.events[:max(n, 0)] {
			if err := o.step(int(e.Fd), e.Events); err != nil {
				return fmt.Errorf("%d of %d connections: %w", o.stands, len(o.conns), err)
			}
			lastNews = time.Now()
		}
		if time.Since(lastNews) > patience {
			return fmt.Errorf("%d of %d connections: none more in %v", o.stands, len(o.conns), patience)
		}
	}
	return nil
}

func (o *opening) begin(slot int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	o.conns[slot].fd = fd
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("TCP_NODELAY: %w", err)
	}
	to := o.to
	if slot >= o.spec.Conns {
		to = o.publish
	}
	if err := unix.Connect(fd, to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return fmt.Errorf("connect: %w", err)
	}
	return unix.EpollCtl(o.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLOUT, Fd: int32(slot)})
}

// step goes on with a connection: it is connected, or has an answer to Hello.
func (o *opening) step(slot int, events uint32) error {
	c := &o.conns[slot]
	if events&unix.EPOLLOUT == 0 {
		return o.welcomed(c)
	}
	if code, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || code != 0 {
		return errors.Join(err, fmt.Errorf("connect: %w", unix.Errno(code)))
	}
	if err := unix.EpollCtl(o.ep, unix.EPOLL_CTL_MOD, c.fd, &unix.EpollEvent{Events: unix.EPOLLIN,
		Fd: int32(slot)}); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	switch {
	case len(c.talk.Hello) > 0:
		return o.write(c, c.talk.Hello)
	case len(c.talk.Join) > 0:
		c.joining = true
		return o.write(c, c.talk.Join)
	}
	o.stands++
	return o.preface(c)
}

// preface sends what a connection begins with.
func (o *opening) preface(c *conn) error {
	if len(c.talk.Preface) == 0 {
		return nil
	}
	return o.write(c, c.talk.Preface)
}

func (o *opening) welcomed(c *conn) error {
	n, err := unix.Read(c.fd, o.input)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return nil
	case err != nil:
		return fmt.Errorf("reading the answer to hello: %w", err)
	case n == 0:
		return errors.New("the server closed the connection instead of answering hello")
	}
	c.tail = append(c.tail, o.input[:n]...)
	if !c.joining {
		if more, err := o.head(c); !more || err != nil {
			return err
		}
	}
	return o.joined(c)
}

// head takes the head off what has come. It reports whether it was there, and right.
func (o *opening) head(c *conn) (bool, error) {
	end := bytes.Index(c.tail, []byte("\r\n\r\n"))
	switch {
	case end < 0 && len(c.tail) < 8<<10:
		return false, nil
	case end < 0 || !bytes.HasPrefix(c.tail, c.talk.Welcome):
		return false, fmt.Errorf("hello was answered by %.200q", c.tail)
	}
	c.tail, c.joining = c.tail[end+4:], true
	if len(c.talk.Join) > 0 {
		return true, o.write(c, c.talk.Join)
	}
	return true, nil
}

// joined looks for the last that the server says.
func (o *opening) joined(c *conn) error {
	switch {
	case len(c.talk.Joined) == 0 && len(c.tail) > 0:
		return fmt.Errorf("the server speaks before it is spoken to: %.200q", c.tail)
	case !bytes.HasSuffix(c.tail, c.talk.Joined) && len(c.tail) < 8<<10:
		return nil
	case !bytes.HasSuffix(c.tail, c.talk.Joined):
		return fmt.Errorf("the server says %.200q, which does not end with %q", c.tail, c.talk.Joined)
	}
	c.tail, c.joining = nil, false
	o.stands++
	return nil
}
