package myriad

import (
	"errors"
	"net"
	"os"
	"testing"

	"github.com/myriad-go/myriad/internal/driver"
)

// An heir is a listener that was inherited.
type heir struct {
	driver.Listener
	shared, closed int
}

func (h *heir) Addr() net.Addr          { return &net.UnixAddr{Name: "heir", Net: "unix"} }
func (h *heir) File() (*os.File, error) { return nil, errors.ErrUnsupported }
func (h *heir) Unshare()                { h.shared-- }
func (h *heir) Refuse()                 {}
func (h *heir) Close() error            { h.closed++; return nil }

func (s *stub) heir() (*heir, *Listener) {
	h := &heir{shared: 1}
	ln := &Listener{engine: s.loop.engine, loop: s.loop, id: driver.MakeID(0, 1, 1), inner: h, handler: idling{}}
	ln.lent.Store(true)
	s.loop.listeners[1] = ln
	ln.obey()
	return h, ln
}

// A Listen that has found its listener, and is not done when the outcome is decided, comes to know
// it: no listener waits for ever.
func TestListenBesideTheEndOfAnInheritance(t *testing.T) {
	for _, early := range []bool{true, false} {
		for _, end := range []inheritanceOutcome{accepts, dropped} {
			_, s := newStub(1)
			e := s.loop.engine
			e.sys = standing{}
			h, ln := s.heir()
			e.inheritance = &inheritance{engine: e}
			e.inheritance.waiting = []*inherited{{of: e.inheritance, network: "unix", addr: "heir", inner: h}}
			inner, from := e.takeInherited("unix", "heir")
			if inner != driver.Listener(h) {
				t.Fatal("it is not found")
			}
			var err error
			if early {
				err = from.of.claim(ln)
			}
			if end == accepts {
				if unclaimed, err := e.EndInheritance(); len(unclaimed) != 0 || err != nil {
					t.Errorf("unclaimed: %q, %v", unclaimed, err)
				}
			} else {
				e.Disinherit()
			}
			if !early {
				err = from.of.claim(ln)
			}
			s.loop.readMail()
			goesOn, closed := end == accepts, ln.closed.Load()
			if ln.halted == goesOn || closed == goesOn || (h.shared == 0) != goesOn {
				t.Errorf("early %v, outcome %v: halted %v, closed %v, shared %d", early, end, ln.halted, closed,
					h.shared)
			}
			if fails := !early && end == dropped; errors.Is(err, ErrClosed) != fails {
				t.Errorf("early %v, outcome %v: %v", early, end, err)
			}
			if inner, _ := e.takeInherited("unix", "heir"); inner != nil {
				t.Error("it is found twice")
			}
		}
	}
}
