package web

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
)

// This file is how an HTTP/1 connection leaves its server.

func (x *h1stream) upgrade(head []byte, h myriad.Handler) error {
	switch {
	case x.out.head != headOpen:
		return errors.New("web: Upgrade after the answer has begun")
	case !x.body.complete():
		return errors.New("web: Upgrade of a request whose body has not been read to its end")
	}
	if err := x.awaitTurn(); err != nil { // or a takeover before would find h on it
		return fmt.Errorf("web: Upgrade: %w", err)
	}
	if err := x.take(takeover{handler: h}, upgrading); err != nil {
		return err
	}
	x.out.refuseContinue() // it would come in the middle of what h speaks
	if err := x.writeSwitch(head); err != nil && x.takeBack() {
		x.fail() // this server answers no more
		return fmt.Errorf("web: Upgrade: %w", err)
	}
	x.enter(upgraded) // not before: h may write as soon as it is opened
	x.notify()
	return nil
}

// writeSwitch queues the head of an upgrade, as soon as there is room for it behind earlier
// answers.
func (x *h1stream) writeSwitch(head []byte) error {
	for {
		err := x.write(head)
		if !errors.Is(err, myriad.ErrFull) {
			return err
		}
		if !x.HandOff() {
			return myriad.ErrOnLoop
		}
		if err := x.out.waitForRoom(forAnswer); err != nil {
			return err
		}
	}
}

// hijack waits until the loop has let the connection go.
func (x *h1stream) hijack() (net.Conn, *bufio.ReadWriter, error) {
	switch {
	case !x.HandOff():
		return nil, nil, fmt.Errorf("web: Hijack: %w", myriad.ErrOnLoop)
	case x.progress().over():
		return nil, nil, errHandlerOver
	case x.out.head != headOpen:
		if err := x.out.flush(); err != nil {
			return nil, nil, err
		}
	}
	gone := departure{waiter: x.lane.st.engine.System().NewParker()}
	x.out.refuseContinue()
	if err := x.take(takeover{done: gone.arrived}, hijacked); err != nil {
		return nil, nil, err
	}
	if x.given.ctx.isLost() { // the client may have gone
		return nil, nil, fmt.Errorf("web: Hijack: %w", x.out.lostErr())
	}
	x.notify()
	gone.waiter.Park()
	if gone.err != nil {
		return nil, nil, fmt.Errorf("web: Hijack: %w", gone.err)
	}
	x.leavesPool()
	x.out.mu.Lock()
	defer x.out.mu.Unlock()
	x.out.seldom.takeover.nc = gone.nc
	return gone.nc, gone.buffered(), nil
}

// A departure is a connection on its way to the goroutine that hijacks it.
type departure struct {
	waiter driver.Parker
	nc     net.Conn
	unread []byte
	err    error
}

func (d *departure) arrived(nc net.Conn, unread []byte, err error) {
	d.nc, d.unread, d.err = nc, unread, err
	d.waiter.Unpark()
}

// buffered makes the ReadWriter that net/http gives: what was read ahead is in its buffer.
func (d *departure) buffered() *bufio.ReadWriter {
	const usual = 4 << 10
	src := &prefixed{d.unread, d.nc}
	r := bufio.NewReaderSize(src, max(usual, len(d.unread)))
	_, _ = r.Peek(len(d.unread)) // from memory; it cannot fail
	return bufio.NewReadWriter(r, bufio.NewWriterSize(d.nc, usual))
}

type prefixed struct {
	first []byte
	r     io.Reader
}

func (p *prefixed) Read(q []byte) (int, error) {
	if len(p.first) > 0 {
		n := copy(q, p.first)
		p.first = p.first[n:]
		return n, nil
	}
	return p.r.Read(q)
}

// giveAway lets the connection go, on its loop.
func (h *conn) giveAway(x *h1stream) {
	h.phase = phaseLeaving
	h.c.SetTimer(0)
	rest := append(x.body.unread(), x.unbegun()...)
	x.loseLine(http.ErrHijacked, nil)
	if h.ahead != nil {
		rest = append(rest, h.ahead.bytes()...)
		h.dropAhead()
	}
	x.out.mu.Lock()
	t := x.out.seldom.takeover
	x.out.mu.Unlock()
	if t.handler != nil {
		h.resume(h.paused) // what the client sends is the handler's now
		h.c.SetHandler(&heir{h, t.handler}, rest)
		return
	}
	h.c.Detach(func(nc net.Conn, unread []byte, err error) {
		if err != nil {
			h.hijackFailed(x, err)
			return
		}
		h.leave()
		t.done(nc, append(rest, unread...), nil)
	})
}

// An heir stands between a conn and the protocol that follows HTTP. The conn leaves when it is
// certain that no more callbacks come, because a connection that is closed meanwhile keeps its
// handler.
type heir struct {
	h    *conn
	next myriad.Handler
}

// Opened makes way; next gets the rest, too.
func (i *heir) Opened(c *myriad.Conn) {
	i.h.leave()
	c.SetHandler(i.next, nil)
}

// Received is never reached: the handler changes in Opened.
func (*heir) Received(c *myriad.Conn, _ []byte) { c.Abort(nil) }

// Stopping leaves it to next, which is told as well.
func (*heir) Stopping(*myriad.Conn) {}

// Closed is called if the connection was closed in that moment.
func (i *heir) Closed(c *myriad.Conn, err error) {
	i.next.Opened(c)
	i.next.Closed(c, err)
}

// hijackFailed tells the handler. The connection is closed: what it had read ahead is no longer in
// order.
func (h *conn) hijackFailed(x *h1stream, err error) {
	if t := x.endTakeover(); t.done != nil {
		t.done(nil, nil, err)
	}
	h.close()
}

// leave ends the server's part in the connection.
func (h *conn) leave() {
	h.setState(http.StateHijacked)
	h.x = nil
	h.lane.remove(&h.link)
}
