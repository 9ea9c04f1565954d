package exchange

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
)

// giving is what a handler is given, and may keep: the request with its URL and context, and itself
// as the ResponseWriter. That is a given or, without Hijack, a given2. Unless Server.ReuseRequests
// says otherwise it is made anew for each request, in one piece of 512 bytes. The response behind
// it is used for other requests when both the handler and the loop are done with it. From then on
// the ResponseWriter leads nowhere, and fails as it does after the handler has returned.
type giving struct {
	Request http.Request
	URL     url.URL
	Ctx     requestContext
	Out     atomic.Pointer[Response] // nil: it is used for another request
	header  http.Header              // of the answer: it can be read still
}

// A given is what the handler of an HTTP/1 request is given, a given2 that of an HTTP/2 request.
// They differ in their methods alone, so that one can be converted into the other.
type (
	Given  struct{ giving }
	given2 struct{ giving }
)

var _ interface {
	http.Flusher
	io.ReaderFrom
	io.StringWriter
} = (*given2)(nil)

var _ http.Hijacker = (*Given)(nil)

func NewGiven() *Given {
	g := new(Given)
	g.adopt()
	return g
}

// adopt gives an empty request its context. That takes a copy of it, and is done before there is
// more to copy.
func (g *giving) adopt() { g.Request = *empty.WithContext(&g.Ctx) }

// Again empties what is used for another request of the same exchange.
func (g *giving) Again() {
	g.URL, g.Ctx, g.header = url.URL{}, requestContext{}, Emptied(g.header)
	g.adopt()
}

var empty http.Request

// response is what an answer is written by, as long as there is one.
func (g *giving) response() (*Response, error) {
	if w := g.Out.Load(); w != nil {
		return w, nil
	}
	return nil, ErrHandlerOver
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
	if w := g.Out.Load(); w != nil {
		w.writeHeader(status)
		return
	}
	g.Ctx.Link.Lane.Server.logSuperfluous()
}

// Write implements http.ResponseWriter. It waits while the connection's queue is full.
func (g *giving) Write(p []byte) (int, error) {
	if w := g.Out.Load(); w != nil {
		return writeBody(w, p)
	}
	return 0, ErrHandlerOver
}

// WriteString implements io.StringWriter.
func (g *giving) WriteString(s string) (int, error) {
	if w := g.Out.Load(); w != nil {
		return writeBody(w, s)
	}
	return 0, ErrHandlerOver
}

// ReadFrom implements io.ReaderFrom, which io.Copy and http.ServeContent look for. The kernel sends
// a regular file, also behind an io.LimitedReader, if the length of the answer is known or the
// answer ends with the connection. Then ReadFrom returns as soon as the file is queued, and no
// goroutine waits for the client. The file may be closed at once, but must not get shorter: the
// connection would be reset.
func (g *giving) ReadFrom(src io.Reader) (int64, error) {
	if w := g.Out.Load(); w != nil {
		return w.readFrom(src)
	}
	return 0, ErrHandlerOver
}

// Flush implements http.Flusher.
func (g *giving) Flush() { _ = g.FlushError() }

// FlushError sends what has been gathered. The connection's loop sends it to the client without
// further waiting.
func (g *giving) FlushError() error {
	if w := g.Out.Load(); w != nil {
		return w.Flush()
	}
	return http.ErrHijacked
}

// CloseNotify implements http.CloseNotifier, which is deprecated and still asked for: gin's
// Context.Stream needs it.
func (g *giving) CloseNotify() <-chan bool { return g.Ctx.CloseNotify() }

// Hijack implements http.Hijacker: the connection leaves the engine as an ordinary net.Conn.
func (g *Given) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w := g.Out.Load(); w != nil {
		return w.X.Carrier.Hijack()
	}
	return nil, nil, ErrHandlerOver
}

// SetReadDeadline bounds the reading of the body; the zero time lifts the bound. When it has
// passed, what has come can be read, and then reads fail until it is moved: the same body goes on.
func (g *giving) SetReadDeadline(t time.Time) error {
	w := g.Out.Load()
	if w == nil {
		return nil
	}
	if nc := w.X.hijacked(); nc != nil {
		return nc.SetReadDeadline(t)
	}
	w.setReadDeadline(t)
	return nil
}

// SetWriteDeadline bounds the answer. The first write behind it fails, unless it has been moved by
// then; from then on all do, and the connection ends with the handler. It is reset if the client
// has left something unread when the deadline passes.
func (g *giving) SetWriteDeadline(t time.Time) error {
	w := g.Out.Load()
	if w == nil {
		return nil
	}
	if nc := w.X.hijacked(); nc != nil {
		return nc.SetWriteDeadline(t)
	}
	w.setWriteDeadline(t)
	return nil
}

// EnableFullDuplex has an answer that is complete when its handler returns leave at once, also if
// the request's body is still coming. Reading and writing never exclude each other here.
func (g *giving) EnableFullDuplex() error {
	if w := g.Out.Load(); w != nil {
		w.Tell().Duplex = true
	}
	return nil
}

// requestContext is the context of one request, part of its exchange. It ends when the handler
// returns, the client goes away or the base context ends.
type requestContext struct {
	Link *Link // whose base context is its parent

	watchers atomic.Pointer[watchers] // nil: there have been none; written under mu

	mu  sync.Mutex
	err error // guarded by mu; that of the base context matters, too

	// How the handler stands to its connection, guarded by mu.
	begun    bool // it runs
	over     bool // it has ended
	lost     bool // the connection has
	away     bool // the client had gone before: CloseNotify says so
	connGone bool // the handler had not ended then, and counts for Shutdown as the connection did; it stays behind end
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

func (c *requestContext) Deadline() (time.Time, bool) { return c.Link.From.Base.Deadline() }

func (c *requestContext) Value(key any) any {
	switch key {
	case http.LocalAddrContextKey:
		return c.Link.C.LocalAddr()
	case ownContextKey{}:
		return c
	}
	if w := c.watchers.Load(); w != nil {
		return w.Value(key)
	}
	return c.Link.From.Base.Value(key)
}

// String is what net/http's contexts say of themselves. Without it, printing a context would read
// what the loop may be changing.
func (c *requestContext) String() string {
	return fmt.Sprintf("%v.WithValue(net/http context value local-addr, %v).WithCancel.WithCancel", c.Link.From.Base,
		c.Link.C.LocalAddr())
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
	base := c.Link.From.Base
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
	return c.Link.From.Base.Err()
}

// Depart is cancel because the client has gone.
func (c *requestContext) Depart() {
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

// CloseNotify is the channel of http.CloseNotifier, always the same.
func (c *requestContext) CloseNotify() <-chan bool {
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

// Begin is called before a handler, for those of a chain twice. It reports false if the connection
// had gone before.
func (c *requestContext) Begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun = c.begun || !c.lost
	return c.begun
}

func (c *requestContext) HasBegun() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun
}

// End is cancel when the handler has ended.
func (c *requestContext) End() {
	c.mu.Lock()
	c.over = true
	c.cancelAndUnlock()
}

// LoseConn is cancel when the connection has gone. It reports, once, whether the handler goes on
// without it: it has begun or is due, and has not ended.
func (c *requestContext) LoseConn(due bool) (connGone bool) {
	c.mu.Lock()
	if connGone = !c.lost && (due || c.begun) && !c.over; connGone {
		c.connGone = true
	}
	c.lost = true
	c.sayGone()
	c.cancelAndUnlock()
	return connGone
}

// IsLost reports whether the connection has gone.
func (c *requestContext) IsLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// cancelAndUnlock ends the context, unless it has ended.
func (c *requestContext) cancelAndUnlock() {
	if c.err == nil {
		c.err = cmp.Or(c.Link.From.Base.Err(), context.Canceled)
	}
	w := c.watchers.Load()
	c.mu.Unlock()
	if w != nil {
		w.end()
	}
}

// Unwatched reports whether the context has ended without a watcher. None can follow. A watcher may
// still copy the request, as http.TimeoutHandler does.
func (c *requestContext) Unwatched() bool { return c.watchers.Load() == nil }

// ownContextKey finds a requestContext behind the contexts that middleware has derived from it.
type ownContextKey struct{}

// ValuesOf is the context of r without its end: see web.ValuesOf.
func ValuesOf(r *http.Request) context.Context {
	ctx := r.Context()
	own, ours := ctx.Value(ownContextKey{}).(*requestContext)
	switch {
	case !ours && ctx == context.Background():
		return nil
	case !ours || ctx != own:
		return context.WithoutCancel(ctx)
	}
	if !own.Link.Lane.Server.HasValues {
		return nil
	}
	return context.WithoutCancel(own.Link.From.Base)
}

// errNotMyriad is web.ErrNotMyriad.
var ErrNotMyriad = errors.New("web: the ResponseWriter is not from a web.Server")

// ResponseOf finds the response behind wrappers that have an Unwrap method, as gin's and chi's do.
func ResponseOf(w http.ResponseWriter) (*Response, error) {
	for {
		switch v := w.(type) {
		case *Given:
			return v.response()
		case *given2:
			return v.response()
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		default:
			return nil, fmt.Errorf("%w: it is a %T", ErrNotMyriad, w)
		}
	}
}

// Upgrade ends HTTP on the connection of w: see web.Upgrade.
func Upgrade(w http.ResponseWriter, head []byte, h myriad.Handler) error {
	r, err := ResponseOf(w)
	if err != nil {
		return err
	}
	return r.X.Carrier.Upgrade(head, h)
}
