package lifetime

import (
	"context"
	"errors"
	"testing"
	"time"
)

type key struct{}

var errGone = errors.New("gone")

// The context has the values of the one it was made of, and neither its end nor its deadline.
func TestOf(t *testing.T) {
	parent, cancel := context.WithDeadline(context.WithValue(t.Context(), key{}, "value"), time.Now().Add(time.Hour))
	early := Of(parent)
	asked := early.Context()
	cancel()
	late := Of(parent).Context()
	for name, ctx := range map[string]context.Context{"asked for before": asked, "asked for after": late} {
		if got := ctx.Value(key{}); got != "value" {
			t.Errorf("%s its parent's end: the value is %v", name, got)
		}
		if _, has := ctx.Deadline(); has || ctx.Err() != nil {
			t.Errorf("%s its parent's end: deadline %v, error %v", name, has, ctx.Err())
		}
	}
	if early.Context() != asked {
		t.Error("a second call returns another context")
	}
}

// A context ends with the first cause, whether it was asked for before or not.
func TestEnd(t *testing.T) {
	for _, tt := range []struct {
		name        string
		first, want error
	}{
		{"a cause", errGone, errGone}, {"no cause", nil, context.Canceled},
	} {
		for _, asked := range []bool{true, false} {
			var l Lifetime
			var before context.Context
			if asked {
				if before = l.Context(); before.Err() != nil || before.Value(key{}) != nil {
					t.Fatalf("a new context has the error %v and the value %v", before.Err(), before.Value(key{}))
				}
			}
			l.End(tt.first)
			l.End(errors.New("second"))
			ctx := l.Context()
			if asked && ctx != before {
				t.Errorf("%s: End has changed the context", tt.name)
			}
			select {
			case <-ctx.Done():
			default:
				t.Errorf("%s, asked for before %v: the context is not done", tt.name, asked)
			}
			if got := context.Cause(ctx); got != tt.want || ctx.Err() != context.Canceled {
				t.Errorf("%s, asked for before %v: cause %v, error %v", tt.name, asked, got, ctx.Err())
			}
		}
	}
}

// Values outlive the end, and what has no Lifetime can end, too.
func TestValuesOutliveTheEnd(t *testing.T) {
	none := (*Lifetime)(nil)
	none.End(errGone)
	l := Of(context.WithValue(t.Context(), key{}, "value"))
	if none.Asked() || l.Asked() {
		t.Error("a Lifetime is said to be asked that was not")
	}
	l.End(errGone)
	if !l.Asked() {
		t.Error("a Lifetime that has ended is said not to be asked")
	}
	if ctx := l.Context(); ctx.Value(key{}) != "value" || context.Cause(ctx) != errGone {
		t.Errorf("after the end: value %v, cause %v", ctx.Value(key{}), context.Cause(ctx))
	}
}
