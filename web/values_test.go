package web

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/myriad-go/myriad/web/internal/exchange"
)

type userKey struct{}

func TestStreamContext(t *testing.T) {
	var request context.Context
	streams := make(chan *Stream, 1)
	f := serve(t, &Server{
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, userKey{}, "of the connection")
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			request = r.Context()
			s, err := Detached(w)
			if err != nil {
				t.Error(err)
				return
			}
			if r.URL.Path == "/kept" {
				s.KeepValues(r.WithContext(context.WithValue(r.Context(), userKey{}, "ann")))
			}
			streams <- s
		}),
	})
	for path, want := range map[string]string{"/": "of the connection", "/kept": "ann"} {
		c := dial(t, f)
		io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n")
		s := <-streams
		<-request.Done() // the handler has returned
		ctx := s.Context()
		if ctx.Err() != nil || ctx.Value(userKey{}) != want || ctx.Value(http.ServerContextKey) == nil ||
			ctx != s.Context() {
			t.Errorf("error %v, user %v", ctx.Err(), ctx.Value(userKey{}))
		}
		c.Close()
		<-ctx.Done()
		if cause := context.Cause(ctx); cause == nil || cause == context.Canceled {
			t.Errorf("%s: ended with %v, want why the client has gone", path, cause)
		}
	}
}

// Close ends it too, and the connection goes on to a stream with a context of its own.
func TestStreamContextEndsWithClose(t *testing.T) {
	streams := make(chan *Stream, 1)
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := Detached(w)
		if err != nil {
			t.Error(err)
		}
		streams <- s
	})})
	c := dial(t, f)
	in := bufio.NewReader(c)
	for range 2 {
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		s := <-streams
		ctx := s.Context()
		if ctx.Err() != nil {
			t.Error("the context of an open stream has ended")
		}
		s.Close()
		<-ctx.Done()
		if cause := context.Cause(ctx); cause != context.Canceled {
			t.Errorf("ended with %v, want %v", cause, context.Canceled)
		}
		r, err := http.ReadResponse(in, nil)
		if got := mustBody(t, r, err); got != "" {
			t.Errorf("read %q", got)
		}
	}
	late := new(exchange.Stream)
	if late.Lost(nil); late.Context().Err() == nil {
		t.Error("the first context of a stream that has ended has not")
	}
}

// What is kept of a request does not end with it, and is nothing where the program has set no
// values.
func TestValuesOf(t *testing.T) {
	values := make(chan context.Context, 1)
	f := serve(t, &Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		values <- ValuesOf(r)
	})})
	r, err := client(t).Get(f.url("/"))
	mustBody(t, r, err)
	if got := <-values; got != nil {
		t.Errorf("a request without values has %v", got)
	}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), userKey{}, "ann"))
	cancel()
	foreign := httptest.NewRequest("GET", "/", nil)
	if got := ValuesOf(foreign); got != nil {
		t.Errorf("a foreign request without values has %v", got)
	}
	if got := ValuesOf(foreign.WithContext(ctx)); got.Err() != nil || got.Value(userKey{}) != "ann" {
		t.Errorf("%v", got)
	}
}
