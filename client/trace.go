package client

import (
	"context"
	"crypto/tls"
	"net/http/httptrace"
	"net/textproto"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
)

// A trace calls the hooks of httptrace that a request's context has.
type trace struct{ hooks *httptrace.ClientTrace }

// noTrace has no hooks.
var noTrace = trace{&httptrace.ClientTrace{}}

func traceOf(ctx context.Context) trace {
	if hooks := httptrace.ContextClientTrace(ctx); hooks != nil {
		return trace{hooks}
	}
	return noTrace
}

func (t trace) getConn(addr string) {
	if f := t.hooks.GetConn; f != nil {
		f(addr)
	}
}

// gotConn calls the hook that a call has a connection.
func (t trace) gotConn(c *myriad.Conn, reused, idled bool, idleFor time.Duration) {
	if f := t.hooks.GotConn; f != nil {
		f(httptrace.GotConnInfo{Conn: c, Reused: reused, WasIdle: idled, IdleTime: idleFor})
	}
}

func (t trace) gotFirstByte() {
	if f := t.hooks.GotFirstResponseByte; f != nil {
		f()
	}
}

func (t trace) got100() {
	if f := t.hooks.Got100Continue; f != nil {
		f()
	}
}

// got1xx reports whether there is a hook for interim responses, and its error.
func (t trace) got1xx(status int, header func() textproto.MIMEHeader) (called bool, err error) {
	if f := t.hooks.Got1xxResponse; f != nil {
		return true, f(status, header())
	}
	return false, nil
}

func (t trace) wait100() {
	if f := t.hooks.Wait100Continue; f != nil {
		f()
	}
}

func (t trace) wroteField(name string, values ...string) {
	if f := t.hooks.WroteHeaderField; f != nil {
		f(name, values)
	}
}

func (t trace) wroteHeaders() {
	if f := t.hooks.WroteHeaders; f != nil {
		f()
	}
}

func (t trace) wroteRequest(err error) {
	if f := t.hooks.WroteRequest; f != nil {
		f(httptrace.WroteRequestInfo{Err: err})
	}
}

func (t trace) putIdle(err error) {
	if f := t.hooks.PutIdleConn; f != nil {
		f(err)
	}
}

func (t trace) handshakeStart() {
	if f := t.hooks.TLSHandshakeStart; f != nil {
		f()
	}
}

func (t trace) handshakeDone(state tls.ConnectionState, err error) {
	if f := t.hooks.TLSHandshakeDone; f != nil {
		f(state, err)
	}
}

// dial is the context of the engine's dial. The resolver is given the hooks for names alone: it
// would call those for connections with its own to a name server.
func (t trace) dial(ctx context.Context) context.Context {
	if t == noTrace {
		return ctx
	}
	names := &httptrace.ClientTrace{DNSStart: t.hooks.DNSStart, DNSDone: t.hooks.DNSDone}
	return driver.WithDialTrace(httptrace.WithClientTrace(withoutValues{ctx}, names), &driver.DialTrace{
		Start: func(network, addr string) {
			if f := t.hooks.ConnectStart; f != nil {
				f(network, addr)
			}
		},
		Done: func(network, addr string, err error) {
			if f := t.hooks.ConnectDone; f != nil {
				f(network, addr, err)
			}
		},
	})
}

// withoutValues is a context that has only the end of another one.
type withoutValues struct{ context.Context }

// Value implements context.Context.
func (withoutValues) Value(any) any { return nil }
