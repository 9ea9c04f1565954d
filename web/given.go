package web

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// giving is what a handler is given, and may keep: the request with its URL and context, and itself
// as the ResponseWriter. That is a given or, without Hijack, a given2. Unless Server.ReuseRequests
// says otherwise it is made anew for each request, in one piece of 512 bytes. The response behind
// it is used for other requests when both the handler and the loop are done with it. From then on
// the ResponseWriter leads nowhere, and fails as it does after the handler has returned.
type giving struct {
	request http.Request
	url     url.URL
	ctx     requestContext
	out     atomic.Pointer[response] // nil: it is used for another request
	header  http.Header              // of the answer: it can be read still
}

// A given is what the handler of an HTTP/1 request is given, a given2 that of an HTTP/2 request.
// They differ in their methods alone, so that one can be converted into the other.
type (
	given  struct{ giving }
	given2 struct{ giving }
)

var _ interface {
	http.Flusher
	io.ReaderFrom
	io.StringWriter
} = (*given2)(nil)

var _ http.Hijacker = (*given)(nil)

func newGiven() *given {
	g := new(given)
	g.adopt()
	return g
}

// adopt gives an empty request its context. That takes a copy of it, and is done before there is
// more to copy.
func (g *giving) adopt() { g.request = *empty.WithContext(&g.ctx) }

// again empties what is used for another request of the same exchange.
func (g *giving) again() {
	g.url, g.ctx, g.header = url.URL{}, requestContext{}, emptied(g.header)
	g.adopt()
}

var empty http.Request

// response is what an answer is written by, as long as there is one.
func (g *giving) response() (*response, error) {
	if w := g.out.Load(); w != nil {
		return w, nil
	}
	return nil, errHandlerOver
}

// Header implements http.ResponseWriter.
func (g *giving) Header() http.Header {
	if g.header == nil {
		g.header = make(http.Header)
	}
	return g.header
}

// WriteHeader implements http.ResponseWriter.
func (g *giving) WriteHeader(status int) {
	if w := g.out.Load(); w != nil {
		w.WriteHeader(status)
		return
	}
	g.ctx.link.lane.s.logSuperfluous()
}

// Write implements http.ResponseWriter. It waits while the connection's queue is full.
func (g *giving) Write(p []byte) (int, error) {
	if w := g.out.Load(); w != nil {
		return writeBody(w, p)
	}
	return 0, errHandlerOver
}

// WriteString implements io.StringWriter.
func (g *giving) WriteString(s string) (int, error) {
	if w := g.out.Load(); w != nil {
		return writeBody(w, s)
	}
	return 0, errHandlerOver
}

// ReadFrom implements io.ReaderFrom, which io.Copy and http.ServeContent look for. The kernel sends
// a regular file, also behind an io.LimitedReader, if the length of the answer is known or the
// answer ends with the connection. Then ReadFrom returns as soon as the file is queued, and no
// goroutine waits for the client. The file may be closed at once, but must not get shorter: the
// connection would be reset.
func (g *giving) ReadFrom(src io.Reader) (int64, error) {
	if w := g.out.Load(); w != nil {
		return w.readFrom(src)
	}
	return 0, errHandlerOver
}

// Flush implements http.Flusher.
func (g *giving) Flush() { _ = g.FlushError() }

// FlushError sends what has been gathered. The connection's loop sends it to the client without
// further waiting.
func (g *giving) FlushError() error {
	if w := g.out.Load(); w != nil {
		return w.flush()
	}
	return http.ErrHijacked
}

// CloseNotify implements http.CloseNotifier, which is deprecated and still asked for: gin's
// Context.Stream needs it.
func (g *giving) CloseNotify() <-chan bool { return g.ctx.closeNotify() }

// Hijack implements http.Hijacker: the connection leaves the engine as an ordinary net.Conn.
func (g *given) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w := g.out.Load(); w != nil {
		return w.x.carrier.hijack()
	}
	return nil, nil, errHandlerOver
}

// SetReadDeadline, SetWriteDeadline and EnableFullDuplex are what http.ResponseController looks
// for. After Hijack the first two are those of the net.Conn that it has returned.

// SetReadDeadline bounds the reading of the body; the zero time lifts the bound. When it has
// passed, what has come can be read, and then reads fail until it is moved: the same body goes on.
func (g *giving) SetReadDeadline(t time.Time) error {
	w := g.out.Load()
	if w == nil {
		return nil
	}
	if nc := w.x.hijacked(); nc != nil {
		return nc.SetReadDeadline(t)
	}
	w.setReadDeadline(t)
	return nil
}

// SetWriteDeadline bounds the answer. The first write behind it fails, unless it has been moved by
// then; from then on all do, and the connection ends with the handler. It is reset if the client
// has left something unread when the deadline passes.
func (g *giving) SetWriteDeadline(t time.Time) error {
	w := g.out.Load()
	if w == nil {
		return nil
	}
	if nc := w.x.hijacked(); nc != nil {
		return nc.SetWriteDeadline(t)
	}
	w.setWriteDeadline(t)
	return nil
}

// EnableFullDuplex has an answer that is complete when its handler returns leave at once, also if
// the request's body is still coming. Reading and writing never exclude each other here.
func (g *giving) EnableFullDuplex() error {
	if w := g.out.Load(); w != nil {
		w.tell().duplex = true
	}
	return nil
}
