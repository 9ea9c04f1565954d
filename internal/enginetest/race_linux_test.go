package enginetest

import (
	"sync/atomic"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/epoll"
)

// meddler is a system whose drivers let another goroutine act in the middle of a Send: the moment
// at which the loop has looked at the conn and has not yet done what it saw.
type meddler struct {
	epoll.System
	act atomic.Pointer[func()] // done once, and waited for
}

func (m *meddler) Open(loop uint8, o driver.Options) (driver.Driver, error) {
	d, err := m.System.Open(loop, o)
	return &meddled{d, m}, err
}

type meddled struct {
	driver.Driver
	m *meddler
}

func (d *meddled) Send(id driver.ID, c *buf.Chain) int64 {
	if f := d.m.act.Swap(nil); f != nil {
		done := make(chan struct{})
		go func() { defer close(done); (*f)() }()
		<-done
	}
	return d.Driver.Send(id, c)
}

func TestWhileTheLoopIsSending(t *testing.T) {
	file := tempFile(t, []byte("file"))
	cases := []struct {
		name, want string
		act        func(t *testing.T, c *myriad.Conn)
	}{
		{"a write leaves", "loop late", func(t *testing.T, c *myriad.Conn) { writeAll(t, c, []byte(" late")) }},
		{"a refusal is answered", "loop drained", func(t *testing.T, c *myriad.Conn) {
			if _, err := c.Write(make([]byte, 101)); err != myriad.ErrFull {
				t.Errorf("Write: %v, want ErrFull", err)
			}
		}},
		{"bytes go before their file", "loop then file", func(t *testing.T, c *myriad.Conn) {
			writeAll(t, c, []byte(" then "))
			if err := c.WriteFile(file, 0, 4); err != nil {
				t.Error(err)
			}
		}},
		{"a notice is heard", "loop noticed", func(t *testing.T, c *myriad.Conn) { c.Notify() }},
		{"an end ends", "loop", func(t *testing.T, c *myriad.Conn) { c.CloseWrite() }},
	}
	eachLayer(t, func(t *testing.T, s setting) {
		for _, tc := range cases {
			t.Run(tc.name, func(t *testing.T) {
				m := &meddler{}
				h := newProbe()
				first := true
				h.notified = func(c *myriad.Conn) {
					if !first {
						c.Write([]byte(" noticed"))
						return
					}
					first = false
					act := func() { tc.act(t, c) }
					m.act.Store(&act)
					c.Write([]byte("loop"))
				}
				h.drained = func(c *myriad.Conn) { c.Write([]byte(" drained")) }
				nc := s.one(t, myriad.Config{System: m, WriteLimit: 100}, h)
				c := await(t, "Opened", h.opens)
				c.Notify()
				expect(t, nc, []byte(tc.want))
			})
		}
	})
}
