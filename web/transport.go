package web

import (
	"os"

	"github.com/myriad-go/myriad"
)

// A conn is the transport of its exchanges, of which one is the first. These methods run on the
// handler's goroutine.
var _ transport = (*conn)(nil)

func (h *conn) write(x *exchange, p []byte) error {
	if x.hold != nil {
		if held, err := x.hold.take(p); held || err != nil {
			return err
		}
	}
	_, err := h.c.Write(p)
	return err
}

func (h *conn) writeFile(x *exchange, f *os.File, off, n int64) error {
	if x.hold != nil && !x.hold.isFirst() {
		return myriad.ErrFull
	}
	return h.c.WriteFile(f, off, n)
}

func (h *conn) ask(*exchange) { h.c.Notify() }

// returned serves what an inline task has asked for at once, so that the answers to pipelined
// requests leave together.
func (h *conn) returned(x *exchange) {
	if h.x == x { // else the connection was lost before Run
		h.serveLine()
	}
}

// fail ends in order if the answer has not begun. Else TLS must not say that this was all: an
// answer whose end is that of its connection would look whole (RFC 9112 section 8, RFC 8446 section
// 6.1).
func (h *conn) fail(x *exchange) {
	end := func() { _ = h.c.Close() }
	if x.out.sentHead {
		end = h.c.Cut
	}
	if x.hold == nil || !x.hold.failLater(end) {
		end()
	}
}

func (h *conn) conn() *myriad.Conn { return h.c }
