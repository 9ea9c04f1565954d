package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"
)

// overBoth runs test with servers of HTTP/1 and of HTTP/2, and a Transport for each.
func overBoth(t *testing.T, h http.HandlerFunc, test func(t *testing.T, url string, tr *Transport)) {
	for name, start := range map[string]func(testing.TB, http.HandlerFunc, *Transport) (*httptest.Server, *Transport){
		overHTTP1: func(t testing.TB, h http.HandlerFunc, tr *Transport) (*httptest.Server, *Transport) {
			return serveHTTP(t, h), fresh(t, tr)
		},
		overHTTP2: clearH2,
	} {
		t.Run(name, func(t *testing.T) {
			s, tr := start(t, h, &Transport{})
			test(t, s.URL, tr)
		})
	}
}

// RoundTrip does not return, and done is not called, while the head of the request is written: its
// caller may use the request again.
func TestResultWaitsForTheHead(t *testing.T) {
	overBoth(t, ok, func(t *testing.T, url string, tr *Transport) {
		for name, rt := range map[string]http.RoundTripper{"RoundTrip": tr, "Do": byDo{tr}} {
			for _, body := range []io.Reader{nil, strings.NewReader("text"), &trickle{"text"}} {
				ctx, cancel := context.WithCancel(t.Context())
				returned := make(chan error, 1)
				early, once := false, sync.Once{}
				trace := &httptrace.ClientTrace{WroteHeaderField: func(string, []string) {
					once.Do(func() {
						cancel()
						select {
						case <-returned:
							early = true
						case <-time.After(20 * time.Millisecond):
						}
					})
				}}
				_, err := rt.RoundTrip(request(t, "POST", url, body).WithContext(httptrace.WithClientTrace(ctx, trace)))
				returned <- err
				if err != context.Canceled { //nolint:errorlint // Do wraps it
					if name == "RoundTrip" {
						t.Errorf("%s, %T: %v", name, body, err)
					}
				}
				if early {
					t.Errorf("%s, %T: it returned while the head was written", name, body)
				}
			}
		}
	})
}

// What a caller may do with a request after an error, or behind the end of its response, races with
// nothing: it changes the request, and uses the memory of its body again. The race detector and the
// runtime's check of maps are the judges.
func TestRequestsAreUsedAgain(t *testing.T) {
	overBoth(t, func(w http.ResponseWriter, r *http.Request) {
		if rand.IntN(4) > 0 { // else the response may come before the request's end
			io.Copy(io.Discard, r.Body)
		}
		w.WriteHeader(http.StatusAccepted)
	}, func(t *testing.T, url string, tr *Transport) {
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				memory := make([]byte, 200_000)
				for range 100 {
					body := io.Reader(bytes.NewReader(memory[:1+rand.IntN(len(memory))]))
					if i%2 == 0 {
						body = io.MultiReader(strings.NewReader("text"))
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(3000))*time.Microsecond)
					req := request(t, "POST", url, body).WithContext(ctx)
					req.Trailer = http.Header{"X-End": nil}
					if r, err := tr.RoundTrip(req); err == nil {
						io.Copy(io.Discard, r.Body)
						r.Body.Close()
					} else {
						req.Method, req.Host, req.URL.Path, req.ContentLength = "PUT", "h", "/again", 3
						req.Body = nil
					}
					req.Header.Set("X-Again", "1")
					req.Trailer["X-End"] = []string{"1"}
					clear(memory)
					cancel()
				}
			})
		}
		wg.Wait()
	})
}

// The cause of a context's end is the error of its request, and of the body. A Read that Close
// ends, or that comes behind it, says so.
func TestCancelCauses(t *testing.T) {
	overBoth(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			io.WriteString(w, "x")
			http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}, func(t *testing.T, url string, tr *Transport) {
		cause := errors.New("the cause")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(10*time.Millisecond, func() { cancel(cause) })
		_, err := tr.RoundTrip(request(t, "GET", url, nil).WithContext(ctx))
		if err != cause { //nolint:errorlint // as it is
			t.Errorf("before the head: %v", err)
		}
		ctx, cancel = context.WithCancelCause(t.Context())
		r, err := tr.RoundTrip(request(t, "GET", url+"/body", nil).WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(10*time.Millisecond, func() { cancel(cause) })
		if p, err := io.ReadAll(r.Body); string(p) != "x" || err != cause { //nolint:errorlint // as it is
			t.Errorf("in the body: %q, %v", p, err)
		}
		r.Body.Close()
		if r, err = tr.RoundTrip(request(t, "GET", url+"/body", nil)); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(10*time.Millisecond, func() { r.Body.Close() })
		_, beside := io.ReadAll(r.Body)
		_, behind := r.Body.Read(make([]byte, 1))
		for when, err := range map[string]error{"beside": beside, "behind": behind} {
			if err == nil || err.Error() != "http: read on closed response body" {
				t.Errorf("%s Close: %v", when, err)
			}
		}
	})
}
