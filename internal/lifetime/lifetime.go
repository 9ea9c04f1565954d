// Package lifetime makes contexts that end with a connection.
package lifetime

import "context"

// A Lifetime makes the context of something that ends once. The zero value carries no values. Its
// owner serialises the calls; the context itself may be used by any goroutine. It holds no
// goroutine and, until Context is called, nothing but its values.
type Lifetime struct {
	ctx context.Context         // the values; once end is set, what Context returns
	end context.CancelCauseFunc // nil: Context has not been called
}

// Of is a Lifetime with the values of ctx, whose end and deadline do not matter.
func Of(ctx context.Context) *Lifetime { return &Lifetime{ctx: context.WithoutCancel(ctx)} }

// Context returns the context, always the same.
func (l *Lifetime) Context() context.Context {
	if l.end == nil {
		values := l.ctx
		if values == nil {
			values = context.Background()
		}
		l.ctx, l.end = context.WithCancelCause(values)
	}
	return l.ctx
}

// End ends the context with a cause; nil stands for context.Canceled. Only the first End counts. A
// nil Lifetime has no context.
func (l *Lifetime) End(cause error) {
	if l == nil {
		return
	}
	l.Context()
	l.end(cause)
}

// Ended is the context of what has ended with a cause and had no Lifetime.
func Ended(cause error) context.Context {
	var l Lifetime
	l.End(cause)
	return l.Context()
}
