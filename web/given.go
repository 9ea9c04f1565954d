package web

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
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

// requestContext is the context of one request, part of its exchange. It ends when the handler
// returns, the client goes away or the base context ends.
type requestContext struct {
	link *link // whose base context is its parent

	watchers atomic.Pointer[watchers] // nil: there have been none; written under mu

	mu  sync.Mutex
	err error // guarded by mu; that of the base context matters, too

	// How the handler stands to its connection, guarded by mu.
	begun    bool // it runs
	over     bool // it has ended
	lost     bool // the connection has
	away     bool // the client had gone before: CloseNotify says so
	connGone bool // the handler had not ended then, and counts for Shutdown as the connection did
}

// watchers wait for the end of a context. They have one of package context, made when the first
// comes. That package would start a goroutine for each context that is derived from a foreign one:
// behind a context.WithValue it does not see an AfterFunc method.
type watchers struct {
	context.Context // a child of the base context
	end             context.CancelFunc
	gone            chan bool // of CloseNotify, guarded by mu; nil: not called
}

var _ context.Context = (*requestContext)(nil)

func (c *requestContext) Deadline() (time.Time, bool) { return c.link.from.base.Deadline() }

func (c *requestContext) Value(key any) any {
	switch key {
	case http.LocalAddrContextKey:
		return c.link.c.LocalAddr()
	case ownContextKey{}:
		return c
	}
	if w := c.watchers.Load(); w != nil {
		return w.Value(key)
	}
	return c.link.from.base.Value(key)
}

// String is what net/http's contexts say of themselves. Without it, printing a context would read
// what the loop may be changing.
func (c *requestContext) String() string {
	return fmt.Sprintf("%v.WithValue(net/http context value local-addr, %v).WithCancel.WithCancel", c.link.from.base,
		c.link.c.LocalAddr())
}

func (c *requestContext) Done() <-chan struct{} { return c.watch().Done() }

// watch returns the watchers.
func (c *requestContext) watch() *watchers {
	if w := c.watchers.Load(); w != nil {
		return w
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.watchers.Load(); w != nil {
		return w
	}
	base := c.link.from.base
	if c.err != nil && base.Err() == nil {
		base = context.WithoutCancel(base) // its functions must not run under mu
	}
	w := new(watchers)
	w.Context, w.end = context.WithCancel(base)
	if c.err != nil {
		w.end()
	}
	c.watchers.Store(w)
	return w
}

func (c *requestContext) Err() error {
	if w := c.watchers.Load(); w != nil {
		return w.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	return c.link.from.base.Err()
}

// depart is cancel because the client has gone.
func (c *requestContext) depart() {
	c.mu.Lock()
	c.sayGone()
	c.cancelAndUnlock()
}

// sayGone has CloseNotify tell of it, unless the handler has ended. mu is held.
func (c *requestContext) sayGone() {
	if c.away || c.over {
		return
	}
	c.away = true
	if w := c.watchers.Load(); w != nil && w.gone != nil {
		w.gone <- true
	}
}

// closeNotify is the channel of http.CloseNotifier, always the same.
func (c *requestContext) closeNotify() <-chan bool {
	w := c.watch()
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.gone == nil {
		w.gone = make(chan bool, 1)
		if c.away {
			w.gone <- true
		}
	}
	return w.gone
}

// begin is called before a handler, for those of a chain twice. It reports false if the connection
// had gone before.
func (c *requestContext) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun = c.begun || !c.lost
	return c.begun
}

func (c *requestContext) hasBegun() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun
}

// end is cancel when the handler has ended.
func (c *requestContext) end() {
	c.mu.Lock()
	c.over = true
	c.cancelAndUnlock()
}

// outlivedConn reports whether the connection was lost before the handler had ended. It is called
// after end, which that no longer changes.
func (c *requestContext) outlivedConn() bool { return c.connGone }

// loseConn is cancel when the connection has gone. It reports, once, whether the handler goes on
// without it: it has begun or is due, and has not ended.
func (c *requestContext) loseConn(due bool) (connGone bool) {
	c.mu.Lock()
	if connGone = !c.lost && (due || c.begun) && !c.over; connGone {
		c.connGone = true
	}
	c.lost = true
	c.sayGone()
	c.cancelAndUnlock()
	return connGone
}

// isLost reports whether the connection has gone.
func (c *requestContext) isLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// cancelAndUnlock ends the context, unless it has ended.
func (c *requestContext) cancelAndUnlock() {
	if c.err == nil {
		c.err = cmp.Or(c.link.from.base.Err(), context.Canceled)
	}
	w := c.watchers.Load()
	c.mu.Unlock()
	if w != nil {
		w.end()
	}
}

// unwatched reports whether the context has ended without a watcher. None can follow. A watcher may
// still copy the request, as http.TimeoutHandler does.
func (c *requestContext) unwatched() bool { return c.watchers.Load() == nil }
