package http1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// This file is how an HTTP/1 connection leaves its server.

func (x *Stream) Upgrade(head []byte, h myriad.Handler) error {
	switch {
	case x.Out.Head != exchange.HeadOpen:
		return errors.New("web: Upgrade after the answer has begun")
	case !x.Body.Complete():
		return errors.New("web: Upgrade of a request whose body has not been read to its end")
	}
	if err := x.awaitTurn(); err != nil { // or a takeover before would find h on it
		return fmt.Errorf("web: Upgrade: %w", err)
	}
	if err := x.Take(exchange.Takeover{Handler: h}, exchange.Upgrading); err != nil {
		return err
	}
	x.Out.RefuseContinue() // it would come in the middle of what h speaks
	if err := x.writeSwitch(head); err != nil && x.TakeBack() {
		x.Fail() // this server answers no more
		return fmt.Errorf("web: Upgrade: %w", err)
	}
	x.Enter(exchange.Upgraded) // not before: h may write as soon as it is opened
	x.Notify()
	return nil
}

// writeSwitch queues the head of an upgrade, as soon as there is room for it behind earlier
// answers.
func (x *Stream) writeSwitch(head []byte) error {
	for {
		err := x.write(head)
		if !errors.Is(err, myriad.ErrFull) {
			return err
		}
		if !x.HandOff() {
			return myriad.ErrOnLoop
		}
		if err := x.Out.WaitForRoom(exchange.ForAnswer); err != nil {
			return err
		}
	}
}

// Hijack waits until the loop has let the connection go.
func (x *Stream) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	switch {
	case !x.HandOff():
		return nil, nil, fmt.Errorf("web: Hijack: %w", myriad.ErrOnLoop)
	case x.Progress().Over():
		return nil, nil, exchange.ErrHandlerOver
	case x.Out.Head != exchange.HeadOpen:
		if err := x.Out.Flush(); err != nil {
			return nil, nil, err
		}
	}
	gone := departure{waiter: x.Lane.Server.Engine.System().NewParker()}
	x.Out.RefuseContinue()
	if err := x.Take(exchange.Takeover{Done: gone.arrived}, exchange.Hijacked); err != nil {
		return nil, nil, err
	}
	if x.Given.Ctx.IsLost() { // the client may have gone
		return nil, nil, fmt.Errorf("web: Hijack: %w", x.Out.LostErr())
	}
	x.Notify()
	gone.waiter.Park()
	if gone.err != nil {
		return nil, nil, fmt.Errorf("web: Hijack: %w", gone.err)
	}
	x.LeavesPool()
	x.Out.Mu.Lock()
	defer x.Out.Mu.Unlock()
	x.Out.Seldom.Takeover.NetConn = gone.nc
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

// An heir stands between a conn and the protocol that follows HTTP. The conn leaves when it is
// certain that no more callbacks come, because a connection that is closed meanwhile keeps its
// handler.
type heir struct {
	h    *Conn
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
