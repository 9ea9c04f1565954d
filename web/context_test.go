package web

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad/web/internal/exchange"
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

// A Stream's context that is asked for while the stream ends has ended afterwards, with OnClose's
// error, and is the only one.
func TestStreamContextAskedBesideTheEnd(t *testing.T) {
	r := httptest.NewRequestWithContext(context.WithValue(t.Context(), userKey{}, "ann"), "GET", "/", nil)
	for range 20_000 {
		s := new(exchange.Stream)
		s.KeepValues(r)
		var asked [2]context.Context
		var missing atomic.Int32
		missing.Store(3)
		pass := func() {
			for missing.Add(-1); missing.Load() > 0; {
				runtime.Gosched()
			}
		}
		var wg sync.WaitGroup
		for i := range asked {
			wg.Go(func() { pass(); asked[i] = s.Context() })
		}
		wg.Go(func() { pass(); s.Lost(io.EOF) })
		wg.Wait()
		for _, ctx := range asked {
			if ctx != s.Context() || ctx.Err() == nil || context.Cause(ctx) != io.EOF {
				t.Fatalf("a context ended with %v, %v, and is the stream's: %v", ctx.Err(), context.Cause(ctx),
					ctx == s.Context())
			}
		}
	}
}

// KeepValues that comes too late changes nothing: the context that was given ends with the stream.
// Behind the end it brings its values.
func TestKeepValuesComesLate(t *testing.T) {
	r := httptest.NewRequestWithContext(context.WithValue(t.Context(), userKey{}, "ann"), "GET", "/", nil)
	s := new(exchange.Stream)
	ctx := s.Context()
	if s.KeepValues(r); s.Context() != ctx {
		t.Error("KeepValues has changed a context that was given")
	}
	if s.Lost(io.EOF); context.Cause(ctx) != io.EOF {
		t.Errorf("it ended with %v", context.Cause(ctx))
	}
	late := new(exchange.Stream)
	late.Lost(io.EOF)
	late.Lost(nil) // again: the first end counts
	late.KeepValues(r)
	if ctx := late.Context(); context.Cause(ctx) != io.EOF || ctx.Value(userKey{}) != "ann" {
		t.Errorf("behind the end the cause is %v, the value %v", context.Cause(ctx), ctx.Value(userKey{}))
	}
}
