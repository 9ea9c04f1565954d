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

// Asked reports whether Context has been called, or End. A nil Lifetime has not been asked.
func (l *Lifetime) Asked() bool { return l != nil && l.end != nil }

// End ends the context with a cause; nil stands for context.Canceled. Only the first End counts. A
// nil Lifetime has no context. End calls no code of the context's users, so the owner may hold the
// lock that serialises the calls.
func (l *Lifetime) End(cause error) {
	if l == nil {
		return
	}
	l.Context()
	l.end(cause)
}
