package web

import (
	"os"

	"github.com/myriad-go/myriad"
)

// A conn is the transport of its one exchange. These methods run on the handler's goroutine.
var _ transport = (*conn)(nil)

func (h *conn) write(_ *exchange, p []byte) error {
	_, err := h.c.Write(p)
	return err
}

func (h *conn) writeFile(_ *exchange, f *os.File, off, n int64) error {
	return h.c.WriteFile(f, off, n)
}

func (h *conn) ask(*exchange) { h.c.Notify() }

func (h *conn) invite(x *exchange) { h.c.Invite(x) }

// returned serves what a guest has asked for at once, so that the answers to pipelined requests leave together.
func (h *conn) returned(x *exchange) {
	if h.x == x { // else the connection was lost before the visit
		h.serveWants(x)
	}
}

func (h *conn) fail(_ *exchange, err error, orderly bool) {
	if orderly {
		_ = h.c.Close()
		return
	}
	h.c.Abort(err)
}

func (h *conn) conn() *myriad.Conn { return h.c }
