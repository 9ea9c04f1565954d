package web

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A context that is derived from a request's, behind values of middleware too, costs no goroutine.
// It ends with the handler, with the same error.
func TestDerivedContextsCostNoGoroutine(t *testing.T) {
	derived := make(chan context.Context, 1)
	f := serve(t, &Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), userKey{}, "ann"), time.Hour)
		context.AfterFunc(ctx, cancel)
		all := make([]byte, 1<<20)
		if all = all[:runtime.Stack(all, true)]; strings.Contains(string(all), "propagateCancel") {
			t.Error("a goroutine waits for the end of the context")
		}
		if ctx.Err() != nil {
			t.Errorf("the context ended before its handler: %v", ctx.Err())
		}
		derived <- ctx
	})})
	r, err := client(t).Get(f.url("/"))
	mustBody(t, r, err)
	ctx := <-derived
	if <-ctx.Done(); ctx.Err() != context.Canceled || context.Cause(ctx) != context.Canceled {
		t.Errorf("ended with %v, %v", ctx.Err(), context.Cause(ctx))
	}
}

// A context that is asked only after its end has ended, and keeps the values of its connection's.
func TestContextAskedAfterItsEnd(t *testing.T) {
	base, end := context.WithCancel(context.WithValue(t.Context(), userKey{}, "ann"))
	defer end()
	c := &requestContext{link: &link{from: &origin{base: base}}}
	if c.end(); c.Err() != context.Canceled {
		t.Errorf("the error is %v", c.Err())
	}
	if <-c.Done(); c.Err() != context.Canceled || c.Value(userKey{}) != "ann" {
		t.Errorf("afterwards the error is %v, the value %v", c.Err(), c.Value(userKey{}))
	}
}

// A context ends with the error of its base, whether it is asked before or after.
func TestContextHasTheErrorOfItsBase(t *testing.T) {
	for _, asked := range []bool{false, true} {
		base, end := context.WithTimeout(t.Context(), -1)
		defer end()
		c := &requestContext{link: &link{from: &origin{base: base}}}
		if asked {
			<-c.Done()
		}
		if c.end(); c.Err() != context.DeadlineExceeded {
			t.Errorf("asked for its end before: %t: the error is %v", asked, c.Err())
		}
		if <-c.Done(); c.Err() != context.DeadlineExceeded {
			t.Errorf("asked for its end before: %t: then the error is %v", asked, c.Err())
		}
	}
}
