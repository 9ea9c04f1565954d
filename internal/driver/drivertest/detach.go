package drivertest

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

var detachCases = []testCase{
	{"Detach", detach},
	{"DetachKeepsUnreadBytes", detachKeepsUnreadBytes},
	{"DetachWithQueue", detachWithQueue},
	{"DetachInsideReceived", detachInsideReceived},
	{"DetachOthersInsideReceived", detachOthersInsideReceived},
	{"DetachAndAttach", detachAndAttach},
	{"ImportBack", importBack},
	{"ImportDuplicated", importDuplicated},
	{"ImportForeign", importForeign},
	{"AttachForeign", attachForeign},
}

// detached takes c out of its driver, when what the peer may have received already is reported
// sent. It ends the case where that is not supported.
func (b *bed) detached(c *Conn) driver.Socket {
	b.Helper()
	b.until("everything is reported sent", func() bool { return c.Left() == 0 || c.Over })
	err := c.Detach()
	if errors.Is(err, driver.ErrUnsupported) {
		b.Skipf("Detach: %v", err)
	}
	if err != nil {
		b.Fatalf("Detach: %v", err)
	}
	b.until("Detached", func() bool { return c.Over })
	if c.Socket == nil {
		b.Fatalf("no socket after Detach: %v", c)
	}
	return c.Socket
}

func (b *bed) conn(s driver.Socket) net.Conn {
	b.Helper()
	nc, err := s.Conn()
	if err != nil {
		b.Fatalf("Socket.Conn: %v", err)
	}
	if err := nc.SetDeadline(b.sys.Now().Add(mostTime)); err != nil {
		b.Fatalf("SetDeadline: %v", err)
	}
	return nc
}

func detach(b *bed) {
	b.start()
	p, c := b.connect()
	b.exchange(p, c)
	s := b.detached(c)
	if s.Remote() != p.Local() || s.Local() != p.Remote() {
		b.Errorf("detached socket from %v to %v, the peer sees %v to %v", s.Remote(), s.Local(), p.Local(), p.Remote())
	}
	nc := b.conn(s)
	if nc.RemoteAddr().String() != p.Local().String() {
		b.Errorf("detached conn to %v, the peer is %v", nc.RemoteAddr(), p.Local())
	}
	already := p.Received()
	if _, err := nc.Write([]byte("by hand")); err != nil {
		b.Fatalf("Write: %v", err)
	}
	b.arrives(p, append(already, "by hand"...))
	p.Write([]byte("answer"))
	p.CloseWrite()
	if got, err := io.ReadAll(nc); err != nil || string(got) != "answer" {
		b.Errorf("read %q, %v", got, err)
	}
	if err := nc.Close(); err != nil {
		b.Errorf("Close: %v", err)
	}
	b.until("the peer sees the end", p.Ended)
	if _, err := s.Conn(); err == nil {
		b.Errorf("a second Conn of one socket")
	}
}

func detachKeepsUnreadBytes(b *bed) {
	b.start()
	p, c := b.connect()
	c.Pause()
	want := pattern(3*readBuffer, 5)
	p.Write(want)
	p.CloseWrite()
	b.settle()
	nc := b.conn(b.detached(c))
	rest, err := io.ReadAll(nc)
	if err != nil {
		b.Errorf("read: %v", err)
	}
	b.same("received and read", append(c.In, rest...), want)
	nc.Close()
}

func detachWithQueue(b *bed) {
	b.start()
	p, c := b.connect()
	p.StopReading()
	want := b.press(c)
	if err := c.Detach(); errors.Is(err, driver.ErrUnsupported) {
		b.Skipf("Detach: %v", err)
	} else if !errors.Is(err, driver.ErrNotIdle) {
		b.Fatalf("Detach with %d bytes queued: %v, want ErrNotIdle", c.Left(), err)
	}
	p.Resume()
	b.until("everything is reported sent", func() bool { return c.Left() == 0 })
	nc := b.conn(b.detached(c))
	if _, err := nc.Write([]byte("the end")); err != nil {
		b.Errorf("Write: %v", err)
	}
	nc.Close()
	b.until("the peer sees the end", p.Ended)
	b.same("the peer received", p.Received(), append(want, "the end"...))
}

func detachInsideReceived(b *bed) {
	b.start()
	p, c := b.connect()
	var err error
	c.OnReceived = func([]byte) { err = c.Detach() }
	want := pattern(4*readBuffer, 5)
	p.Write(want)
	p.CloseWrite()
	b.until("Detached", func() bool { return c.Over || err != nil })
	if errors.Is(err, driver.ErrUnsupported) {
		b.Skipf("Detach: %v", err)
	}
	if c.Socket == nil {
		b.Fatalf("no socket after Detach: %v", c)
	}
	nc := b.conn(c.Socket)
	rest, err := io.ReadAll(nc)
	if err != nil {
		b.Errorf("read: %v", err)
	}
	b.same("received and read", append(c.In, rest...), want)
	nc.Close()
}

// The first connection with an event detaches all others that have events.
func detachOthersInsideReceived(b *bed) {
	const n = 9
	b.start()
	other := b.open(otherLoop)
	var peers []Peer
	var conns []*Conn
	want := pattern(3*readBuffer, 5)
	for range n {
		p, c := b.connect()
		c.Pause()
		peers, conns = append(peers, p), append(conns, c)
		p.Write(want[:100])
	}
	b.settle()
	var first *Conn
	var err error
	for _, c := range conns {
		c.OnReceived = func([]byte) {
			if first != nil {
				return
			}
			first = c
			for _, o := range conns {
				if o != c && err == nil {
					err = o.Detach()
				}
			}
		}
		c.Resume()
	}
	b.until("all others are detached", func() bool {
		return err != nil || first != nil && all(conns, func(c *Conn) bool { return c == first || c.Over })()
	})
	if errors.Is(err, driver.ErrUnsupported) {
		b.Skipf("Detach: %v", err)
	}
	for i, c := range conns {
		if c != first {
			peers[i].Write(want[100:])
			peers[i].CloseWrite()
			b.goesOn(c, want, other, i%3)
		}
	}
}

// goesOn reads the rest of a connection that has been detached: by hand, on another loop, or on
// another loop after it has been taken out again.
func (b *bed) goesOn(c *Conn, want []byte, other *Checker, how int) {
	b.Helper()
	if c.Socket == nil {
		b.Fatalf("no socket after Detach: %v", c)
	}
	sock := c.Socket
	if how == 2 {
		var err error
		if sock, err = b.sys.Import(b.conn(sock)); err != nil {
			b.Fatalf("Import: %v", err)
		}
	}
	if how == 0 {
		nc := b.conn(sock)
		defer nc.Close()
		rest, err := io.ReadAll(nc)
		if err != nil {
			b.Errorf("read: %v", err)
		}
		b.same("received and read", append(c.In, rest...), want)
		return
	}
	again, err := other.AttachTo(sock)
	if err != nil {
		b.Fatalf("Attach: %v", err)
	}
	b.until("Ended on the other loop", func() bool { return again.Ended })
	b.same("received on both loops", append(c.In, again.In...), want)
}

func detachAndAttach(b *bed) {
	b.start()
	other := b.open(otherLoop)
	p, c := b.connect()
	for i := range 6 {
		s := b.detached(c)
		k := b.k
		if i%2 == 0 {
			k = other
		}
		var err error
		if c, err = k.AttachTo(s); err != nil {
			b.Fatalf("Attach: %v", err)
		}
		already := p.Received()
		p.Write([]byte{byte(i)})
		b.receive(c, []byte{byte(i)})
		c.Send([]byte{byte(i)})
		b.arrives(p, append(already, byte(i)))
		b.until("everything is reported sent", func() bool { return c.Left() == 0 })
	}
	p.CloseWrite()
	b.until("Ended", func() bool { return c.Ended })
	c, err := b.k.AttachTo(b.detached(c))
	if err != nil {
		b.Fatalf("Attach: %v", err)
	}
	b.until("Ended, for the new id too", func() bool { return c.Ended })
	b.closed(c)
}

func importBack(b *bed) {
	b.start()
	p, c := b.connect()
	nc := b.conn(b.detached(c))
	if err := nc.SetDeadline(time.Time{}); err != nil {
		b.Fatalf("SetDeadline: %v", err)
	}
	s, err := b.sys.Import(nc)
	if err != nil {
		b.Fatalf("Import: %v", err)
	}
	if c, err = b.k.AttachTo(s); err != nil {
		b.Fatalf("Attach: %v", err)
	}
	b.exchange(p, c)
	if _, err := nc.Write([]byte("x")); err == nil {
		b.Errorf("a conn that was imported can still be written to")
	}
	b.closed(c)
}

// The test keeps a duplicate of what was imported, which stays open when the driver has closed its
// own.
func importDuplicated(b *bed) {
	b.start()
	for _, end := range []func(c *Conn){(*Conn).Close, (*Conn).Abort} {
		p, c := b.connect()
		nc := b.conn(b.detached(c))
		filer, ok := nc.(interface{ File() (*os.File, error) })
		if !ok {
			b.Skipf("a %T has no descriptor", nc)
		}
		f, err := filer.File()
		if err != nil {
			b.Fatalf("File: %v", err)
		}
		defer f.Close()
		s, err := b.sys.Import(nc)
		if err != nil {
			b.Fatalf("Import: %v", err)
		}
		if c, err = b.k.AttachTo(s); err != nil {
			b.Fatalf("Attach: %v", err)
		}
		if c, err = b.k.AttachTo(b.detached(c)); err != nil {
			b.Fatalf("Attach: %v", err)
		}
		b.exchange(p, c)
		end(c)
		b.over(c, false)
		p.Write([]byte("for the other one"))
		b.idles("with a duplicate of what it has closed")
	}
}

func importForeign(b *bed) {
	b.start()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	if _, err := b.sys.Import(near); !errors.Is(err, driver.ErrUnsupported) {
		b.Fatalf("Import of a pipe: %v, want ErrUnsupported", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := far.Write([]byte("x"))
		done <- err
	}()
	if _, err := near.Read(make([]byte, 1)); err != nil {
		b.Errorf("a conn whose import failed cannot be read: %v", err)
	}
	if err := <-done; err != nil {
		b.Errorf("write to its other end: %v", err)
	}
}

func attachForeign(b *bed) {
	b.start()
	s := &foreignSocket{}
	if _, err := b.k.AttachTo(s); !errors.Is(err, driver.ErrUnsupported) {
		b.Errorf("Attach of another system's socket: %v, want ErrUnsupported", err)
	}
	if !s.closed {
		b.Errorf("Attach failed and left the socket open")
	}
}

type foreignSocket struct{ closed bool }

func (s *foreignSocket) Local() driver.Addr      { return driver.Addr{} }
func (s *foreignSocket) Remote() driver.Addr     { return driver.Addr{} }
func (s *foreignSocket) Conn() (net.Conn, error) { return nil, net.ErrClosed }
func (s *foreignSocket) Close() error            { s.closed = true; return nil }
