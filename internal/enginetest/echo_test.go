package enginetest

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"github.com/myriad-go/myriad"
)

// echoAll echoes whatever comes and waits with reading while the queue is full, so that it works
// for any peer.
type echoAll struct {
	left  []byte
	ended bool
}

func newEchoAll() myriad.Handler { return eachOwn(func() myriad.Handler { return &echoAll{} }) }

// eachOwn gives every conn of a listener a handler of its own.
type eachOwn func() myriad.Handler

func (f eachOwn) Opened(c *myriad.Conn)            { c.SetHandler(f(), nil) }
func (f eachOwn) Received(*myriad.Conn, []byte)    { panic("bytes before the handler was exchanged") }
func (f eachOwn) Closed(c *myriad.Conn, err error) {}

func (h *echoAll) Opened(*myriad.Conn) {}

func (h *echoAll) Received(c *myriad.Conn, p []byte) {
	if _, err := c.Write(p); err == myriad.ErrFull {
		h.left = bytes.Clone(p)
		c.Pause()
	}
}

func (h *echoAll) Drained(c *myriad.Conn) {
	if _, err := c.Write(h.left); err == myriad.ErrFull {
		return
	}
	h.left = nil
	c.Resume()
	h.end(c)
}

func (h *echoAll) Ended(c *myriad.Conn) {
	h.ended = true
	h.end(c)
}

func (h *echoAll) end(c *myriad.Conn) {
	if h.ended && h.left == nil {
		c.Close()
	}
}

func (h *echoAll) Closed(*myriad.Conn, error) {}

func TestEcho(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		e := start(t, myriad.Config{WriteLimit: 16 << 10, ReadBuffer: 8 << 10})
		ln := s.listen(t, e, newEchoAll())
		for _, size := range []int{0, 1, 2, 1000, 8191, 8192, 8193, 100_000, 5_000_000} {
			t.Run(fmt.Sprint(size), func(t *testing.T) {
				nc := s.dial(t, ln)
				msg := pattern(size)
				go func() {
					for p := msg; len(p) > 0; {
						n := min(len(p), 1+len(p)/3)
						if _, err := nc.Write(p[:n]); err != nil {
							t.Errorf("write: %v", err)
							return
						}
						p = p[n:]
					}
					closeWrite(t, nc)
				}()
				expectEnd(t, nc, msg)
			})
		}
	})
}

func TestEchoOverUnix(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		e := start(t, myriad.Config{})
		path := filepath.Join(t.TempDir(), "socket")
		ln, err := e.Listen("unix", path, s.wrap(newEchoAll()))
		if err != nil {
			t.Fatal(err)
		}
		nc := s.dial(t, ln)
		msg := pattern(1_000_000)
		go func() {
			send(t, nc, msg)
			closeWrite(t, nc)
		}()
		expectEnd(t, nc, msg)
	})
}

// Either side may end first, and the other goes on sending.
func TestHalfClose(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		t.Run("peer first", func(t *testing.T) {
			h := newProbe()
			h.ended = func(c *myriad.Conn) {
				c.Write([]byte("after "))
				c.Write([]byte("the end"))
				c.CloseWrite()
			}
			nc := s.one(t, myriad.Config{}, h)
			closeWrite(t, nc)
			expectEnd(t, nc, []byte("after the end"))
			if err := await(t, "Closed", h.closes); err != nil {
				t.Errorf("Closed(%v), want nil", err)
			}
		})
		t.Run("engine first", func(t *testing.T) {
			h := newProbe()
			var got bytes.Buffer
			h.opened = func(c *myriad.Conn) { c.Write([]byte("bye")); c.CloseWrite() }
			h.received = func(_ *myriad.Conn, p []byte) { got.Write(p) }
			h.ended = func(*myriad.Conn) {}
			nc := s.one(t, myriad.Config{}, h)
			expectEnd(t, nc, []byte("bye"))
			send(t, nc, pattern(10_000))
			closeWrite(t, nc)
			if err := await(t, "Closed", h.closes); err != nil {
				t.Errorf("Closed(%v), want nil", err)
			}
			if !bytes.Equal(got.Bytes(), pattern(10_000)) {
				t.Errorf("got %d bytes after our FIN", got.Len())
			}
			c := <-h.opens
			if _, err := c.Write([]byte("x")); err != myriad.ErrClosed {
				t.Errorf("Write after Closed: %v", err)
			}
		})
	})
}

// A write by another goroutine must leave even if it comes in the middle of the conn's turn.
func TestWriteFromElsewhereIsNeverLeftBehind(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		h.received = func(c *myriad.Conn, p []byte) { c.Notify() }
		nc := s.one(t, myriad.Config{WriteLimit: 64 << 20}, h)
		c := await(t, "Opened", h.opens)
		const rounds = 20_000
		go func() {
			for range rounds {
				if _, err := c.Write([]byte{'w'}); err != nil {
					t.Errorf("Write: %v", err)
					return
				}
			}
		}()
		go func() { // keeps the conn in turns of its own
			for range rounds / 100 {
				nc.Write([]byte{'r'})
			}
		}()
		if n, err := io.CopyN(io.Discard, nc, rounds); err != nil {
			t.Fatalf("%d of %d writes came: %v", n, rounds, err)
		}
	})
}
