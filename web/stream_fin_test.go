package web

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// eachWay runs a test with all ways to run handlers, and with and without pipelining.
func eachWay(t *testing.T, test func(t *testing.T, d Dispatch, depth int)) {
	for _, d := range []Dispatch{DispatchAuto, DispatchPool, DispatchInline} {
		for _, depth := range []int{0, 8} {
			t.Run(fmt.Sprintf("%v, at most %d", d, depth), func(t *testing.T) { t.Parallel(); test(t, d, depth) })
		}
	}
}

// A client that ends its side behind its requests gets what a Stream has written by then. If the
// Stream was closed, that and the answers to what was asked behind it are complete. One that is
// open ends with its client's side, and without an end of its body. It is so over TLS, with a
// close_notify and without.
func TestStreamsBeforeAFIN(t *testing.T) {
	const rest = "GET /more HTTP/1.1\r\nHost: a\r\n\r\n"
	eachWay(t, func(t *testing.T, d Dispatch, depth int) {
		ends := make(chan error, 1)
		s := &Server{Dispatch: d, PipelineDepth: depth, Handler: http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/more" {
					fmt.Fprint(w, "more")
					return
				}
				s, err := Detached(w)
				if err != nil {
					t.Error(err)
					return
				}
				s.OnClose(func(err error) { ends <- err })
				if r.URL.Path == "/slow" && d != DispatchInline {
					time.Sleep(5 * time.Millisecond) // so that the FIN is there; what is wanted does not depend on it
				}
				if _, err = s.Write([]byte("event")); err != nil {
					t.Error(err)
				}
				if r.URL.Path != "/open" {
					_ = s.Close()
				}
			})}
		check := func(name, path, got string) {
			t.Helper()
			want := []string{"200 close false event <nil>"}
			switch {
			case strings.HasPrefix(path, "/open"):
				want[0] = "200 close false event unexpected EOF"
			case strings.HasSuffix(path, rest):
				want = append(want, "200 close false more <nil>")
			}
			if all := statuses(got); !slices.Equal(all, want) {
				t.Errorf("%s, %.10q: the client got %q, want %q", name, path, all, want)
			}
			if err := <-ends; strings.HasPrefix(path, "/open") == (err == nil) {
				t.Errorf("%s, %.10q: OnClose was called with %v", name, path, err)
			}
		}
		f, secured := serve(t, s), serveTLS(t, &Server{Dispatch: d, PipelineDepth: depth, Handler: s.Handler})
		for _, path := range []string{"/closed", "/slow", "/open"} {
			for _, more := range []string{"", rest} {
				request := "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n" + more
				check("TCP", path+more, raw(t, f, request, true))
				got, err := answersAfterFIN(secured.dialTLS(t, trusting()), request)
				if err != nil && path != "/open" {
					t.Error(err)
				}
				check("TLS without close_notify", path+more, got)
				tc := secured.dialTLS(t, trusting())
				io.WriteString(tc, request)
				_ = tc.CloseWrite()
				all, err := io.ReadAll(tc)
				if err != nil && path != "/open" {
					t.Error(err)
				}
				check("TLS", path+more, string(all))
			}
		}
	})
}

// What has lined up behind a Stream that ends its connection ends, too: contexts, and memory.
func TestRequestsBehindTheLastStreamEnd(t *testing.T) {
	contexts := make(chan context.Context, 1)
	s := &Server{Dispatch: DispatchPool, PipelineDepth: 8, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/more" {
				contexts <- r.Context()
				<-r.Context().Done()
				return
			}
			w.Header().Set("Connection", "close")
			s, err := Detached(w)
			if err != nil {
				t.Error(err)
				return
			}
			<-contexts // the other handler runs
			_ = s.Close()
		})}
	f := serve(t, s)
	got := statuses(raw(t, f, "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /more HTTP/1.1\r\nHost: a\r\n\r\n", false))
	if !slices.Equal(got, []string{"200 close true  <nil>"}) {
		t.Errorf("the client got %q", got)
	}
	if err := s.Shutdown(t.Context()); err != nil { // it waits for the handler
		t.Error(err)
	}
}

// However a client goes away, its stream is told once.
func TestStreamsOfFleetingClients(t *testing.T) {
	var mu sync.Mutex
	open := 0
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := Detached(w)
		if err != nil {
			return
		}
		mu.Lock()
		open++
		mu.Unlock()
		s.OnClose(func(error) {
			mu.Lock()
			open--
			mu.Unlock()
		})
	})})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 300 {
				c, err := net.Dial("tcp", f.addr)
				if err != nil {
					t.Error(err)
					return
				}
				io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
				if i%2 == 0 {
					c.(*net.TCPConn).SetLinger(0)
				}
				c.Close()
			}
		})
	}
	wg.Wait()
	for f.Engine.Stats().Conns > 0 || f.state.Conns.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	if err := poolOf(f.state).Close(t.Context()); err != nil { // every handler has returned
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if open != 0 {
		t.Errorf("%d streams were not told", open)
	}
}
