package driver

import (
	"context"
	"net"
)

// A DialTrace is called with every address that a dial tries, as httptrace.ClientTrace is. Its
// functions run on a loop and must not block; both are there.
type DialTrace struct {
	Start func(network, addr string)
	Done  func(network, addr string, err error)
}

type dialTraceKey struct{}

// WithDialTrace returns a context whose dials t is called for.
func WithDialTrace(ctx context.Context, t *DialTrace) context.Context {
	return context.WithValue(ctx, dialTraceKey{}, t)
}

// DialTraceOf is what WithDialTrace was given, or nil, whose methods have no effect.
func DialTraceOf(ctx context.Context) *DialTrace {
	t, _ := ctx.Value(dialTraceKey{}).(*DialTrace)
	return t
}

// Begin is for an attempt that begins.
func (t *DialTrace) Begin(a net.Addr) {
	if t != nil {
		t.Start(a.Network(), a.String())
	}
}

// End is for an attempt that has ended; err is nil if it stands.
func (t *DialTrace) End(a net.Addr, err error) {
	if t != nil {
		t.Done(a.Network(), a.String(), err)
	}
}
