package tlsloop_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/tlsloop"
)

// These are tests of connections that have left the engine without a tls.Conn.

func leanOnly(t *testing.T) {
	t.Helper()
	if !patient.LeanTLS {
		t.Skip("crypto/tls has the connections")
	}
}

// outside gives both ends of a connection that has left the engine.
func outside(t *testing.T) (*recordPeer, net.Conn) {
	t.Helper()
	conns := make(chan net.Conn, 1)
	addr := listen(t, start(t, myriad.Config{}), patient.Handler(ticketless(), always(leaveTo(conns))))
	p := newRecordPeer(t, addr)
	p.write(p.seal(recordApplication, "leave", 0))
	nc := await(t, "net.Conn", conns)
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	return p, nc
}

// noKeys checks which keys a connection has given up.
func noKeys(t *testing.T, nc net.Conn, reading, writing bool) {
	t.Helper()
	if r, w := tlsloop.HoldsKeysOutside(nc); r && reading || w && writing {
		t.Errorf("keys are left: for reading %v, for writing %v", r, w)
	}
}

// A stream that a FIN has cut, before the connection left the engine or behind that, is none that
// has ended in order.
func TestTruncationOutside(t *testing.T) {
	leanOnly(t)
	for name, cut := range map[string]int{"between records": 0, "in a header": 3, "in a record": 7} {
		t.Run(name, func(t *testing.T) {
			p, nc := outside(t)
			p.write(p.seal(recordApplication, "whole", 0), p.seal(recordApplication, "text", 0)[:cut])
			_ = p.Conn.(*net.TCPConn).CloseWrite()
			if all, err := io.ReadAll(nc); string(all) != "whole" || err != io.ErrUnexpectedEOF {
				t.Errorf("Read: %q, %v", all, err)
			}
			noKeys(t, nc, true, false)
		})
		t.Run(name+", before it left", func(t *testing.T) {
			conns := make(chan net.Conn, 1)
			front := cutProbe{newProbe(), func(c *myriad.Conn, err error) {
				c.Detach(func(nc net.Conn, _ []byte, err error) {
					if err != nil {
						t.Error(err)
					}
					conns <- nc
				})
			}}
			p := newRecordPeer(t, listen(t, start(t, myriad.Config{}), patient.Handler(ticketless(), always(front))))
			p.write(p.seal(recordApplication, "text", 0)[:cut])
			_ = p.Conn.(*net.TCPConn).CloseWrite()
			nc := await(t, "net.Conn", conns)
			if nc == nil {
				return
			}
			defer nc.Close()
			for range 2 {
				if n, err := nc.Read(make([]byte, 10)); n != 0 || err != io.ErrUnexpectedEOF {
					t.Errorf("Read: %d, %v", n, err)
				}
			}
			noKeys(t, nc, true, false)
			send(t, nc, "answer")
			p.expect("answer")
		})
	}
	t.Run("a close_notify before it left", func(t *testing.T) {
		conns, h := make(chan net.Conn, 1), newProbe()
		h.ended = func(c *myriad.Conn) {
			c.Detach(func(nc net.Conn, _ []byte, err error) { conns <- nc })
		}
		p := newRecordPeer(t, listen(t, start(t, myriad.Config{}), patient.Handler(ticketless(), always(h))))
		p.write(p.seal(recordAlert, "\x01\x00", 0))
		nc := await(t, "net.Conn", conns)
		defer nc.Close()
		if n, err := nc.Read(make([]byte, 10)); n != 0 || err != io.EOF {
			t.Errorf("Read: %d, %v", n, err)
		}
		noKeys(t, nc, true, false)
	})
}

// Nothing is sealed behind the close_notify of CloseWrite, also if the connection leaves then.
func TestDetachBehindCloseWrite(t *testing.T) {
	leanOnly(t)
	conns, h := make(chan net.Conn, 1), newProbe()
	h.received = func(c *myriad.Conn, p []byte) {
		if string(p) == "end" {
			if err := c.CloseWrite(); err != nil {
				t.Error(err)
			}
			return
		}
		c.Detach(func(nc net.Conn, _ []byte, err error) {
			if err != nil {
				t.Error(err)
			}
			conns <- nc
		})
	}
	p := newRecordPeer(t, listen(t, start(t, myriad.Config{}), patient.Handler(ticketless(), always(h))))
	p.write(p.seal(recordApplication, "end", 0))
	if kind, text, err := p.next(); kind != recordAlert || text != "\x01\x00" || err != nil {
		t.Fatalf("record %d %x, %v", kind, text, err)
	}
	p.write(p.seal(recordApplication, "leave", 0))
	nc := await(t, "net.Conn", conns)
	if nc == nil {
		return
	}
	defer nc.Close()
	if n, err := nc.Write([]byte("x")); n != 0 || err == nil || err.Error() != "tls: protocol is shutdown" {
		t.Errorf("Write: %d, %v", n, err)
	}
	noKeys(t, nc, false, true)
	if err := nc.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Errorf("CloseWrite again: %v", err)
	}
	p.write(p.seal(recordApplication, "more", 0), p.keyUpdate(1))
	expect(t, nc, "more")
	nc.Close()
	if kind, text, err := p.next(); err == nil {
		t.Errorf("behind the close_notify: record %d %q", kind, text)
	}
}

// The peer's fatal alert ends both sides, and is not answered.
func TestFatalAlertOutside(t *testing.T) {
	leanOnly(t)
	p, nc := outside(t)
	p.write(p.seal(recordAlert, "\x02\x50", 0))
	var alert *net.OpError
	if _, err := nc.Read(make([]byte, 10)); !errors.As(err, &alert) || alert.Op != "remote error" {
		t.Errorf("Read: %v", err)
	}
	noKeys(t, nc, true, true)
	if _, err := nc.Write([]byte("x")); !errors.As(err, &alert) || alert.Op != "remote error" {
		t.Errorf("Write: %v", err)
	}
	nc.Close()
	if kind, text, err := p.next(); err == nil {
		t.Errorf("behind the alert: record %d %q", kind, text)
	}
}

// Close erases the keys also where a Read or a Write is at work that succeeds.
func TestCloseBesideReadAndWrite(t *testing.T) {
	leanOnly(t)
	_, nc := outside(t)
	if err := tlsloop.CloseBeside(nc); err != nil {
		t.Error(err)
	}
	noKeys(t, nc, true, true)
	if _, err := nc.Read(make([]byte, 1)); err != net.ErrClosed {
		t.Errorf("Read: %v", err)
	}
	if _, err := nc.Write([]byte("x")); err != net.ErrClosed {
		t.Errorf("Write: %v", err)
	}
	for range 20 {
		p, nc := outside(t)
		p.write(p.seal(recordApplication, "text", 0))
		var wg sync.WaitGroup
		start := make(chan struct{})
		for _, f := range []func(){
			func() { _, _ = nc.Read(make([]byte, 10)) },
			func() { _, _ = nc.Write([]byte("text")) },
			func() { nc.Close() },
		} {
			wg.Add(1)
			go func() { defer wg.Done(); <-start; f() }()
		}
		close(start)
		wg.Wait()
		noKeys(t, nc, true, true)
	}
}

// A connection that waits outside holds less than a kilobyte for what may come, whatever came
// before.
func TestIdleOutside(t *testing.T) {
	leanOnly(t)
	p, nc := outside(t)
	p.write(p.seal(recordApplication, pattern(16_000), 0), p.seal(recordApplication, "end", 0),
		p.seal(recordApplication, "part", 0)[:7])
	expect(t, nc, pattern(16_000)+"end")
	_ = nc.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if n, err := nc.Read(make([]byte, 10)); n != 0 || err == nil {
		t.Fatalf("Read: %d, %v", n, err)
	}
	if held := tlsloop.HeldOutside(nc); held == 0 || held > 1024 {
		t.Errorf("%d bytes for a part of 7", held)
	}
}

// What was read outside and not taken is not lost if the connection leaves again before the loop
// has come to it.
func TestLeavesTwice(t *testing.T) {
	leanOnly(t)
	conns, e := make(chan net.Conn, 1), start(t, myriad.Config{})
	addr := listen(t, e, patient.Handler(ticketless(), always(leaveTo(conns))))
	p := newRecordPeer(t, addr)
	p.write(p.seal(recordApplication, "leave", 0))
	nc := await(t, "net.Conn", conns)
	p.write(p.seal(recordApplication, "one two", 0))
	_ = nc.SetDeadline(time.Now().Add(patience))
	expect(t, nc, "one")
	type left struct {
		nc     net.Conn
		unread string
	}
	again, h := make(chan left, 1), newProbe()
	h.opened = func(c *myriad.Conn) {
		c.Detach(func(nc net.Conn, unread []byte, err error) {
			if err != nil {
				t.Error(err)
			}
			again <- left{nc, string(unread)}
		})
	}
	if _, err := e.Adopt(nc, nil, h); err != nil {
		t.Fatal(err)
	}
	got := await(t, "net.Conn", again)
	if got.nc == nil {
		return
	}
	defer got.nc.Close()
	_ = got.nc.SetDeadline(time.Now().Add(patience))
	if rest := " two"[len(got.unread):]; got.unread+rest != " two" {
		t.Errorf("unread: %q", got.unread)
	} else if rest != "" {
		expect(t, got.nc, rest)
	}
	p.write(p.seal(recordApplication, "three", 0))
	expect(t, got.nc, "three")
}
