package web

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/web/internal/exchange"
)

// This file reads bodies of requests in fake time.

const continues = "HTTP/1.1 100 Continue\r\n\r\n"

// A client that expects 100 Continue gets it once, by the first Read: also by one of zero bytes.
// Without a Read, or behind Close, it does not, and its connection ends.
func TestExpectedContinue(t *testing.T) {
	for name, tc := range map[string]struct {
		handle func(b io.ReadCloser) error
		before string // what comes before the client has sent its body
		want   string
	}{
		"read": {func(b io.ReadCloser) error { _, err := io.ReadAll(b); return err }, continues, "<nil>"},
		"read none": {func(b io.ReadCloser) error { _, err := b.Read(nil); io.ReadAll(b); return err }, continues,
			"<nil>"},
		"closed": {func(b io.ReadCloser) error { b.Close(); _, err := io.ReadAll(b); return err }, "",
			http.ErrBodyReadAfterClose.Error()},
		"not read": {func(io.ReadCloser) error { return nil }, "", "<nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			st := calmStage(t, &Server{Dispatch: DispatchPool,
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPost {
						fmt.Fprint(w, tc.handle(r.Body))
					}
				})})
			p := st.Dial(st.at)
			p.Write([]byte(post + "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n"))
			st.RunFor(time.Second)
			got := string(p.TakeReceived())
			if tc.before != "" {
				if got != tc.before {
					t.Fatalf("before the body came %q", got)
				}
				p.Write([]byte("body"))
				st.ask(p, time.Second, "/")
				got = string(p.TakeReceived())
			}
			bodies := answers(t, got)
			if p.Ended() != (tc.before == "") || len(bodies) == 0 || bodies[0] != tc.want ||
				len(bodies) != 1+len(tc.before)/len(continues) {
				t.Errorf("got %q; the connection has ended: %v", bodies, p.Ended())
			}
			p.Close()
		})
	}
}

// A Read returns what there is, waits for more, and tells of the end with the last bytes. Close
// ends it.
func TestReadsOfABody(t *testing.T) {
	for _, chunked := range []bool{false, true} {
		var st *stage
		var reads []string
		var seen []time.Duration
		var began time.Time
		st = calmStage(t, &Server{Dispatch: DispatchPool,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				began = st.Now()
				read := func(n int) {
					p := make([]byte, n)
					n, err := r.Body.Read(p)
					reads = append(reads, fmt.Sprint(string(p[:n]), " ", err))
					seen = append(seen, st.Now().Sub(began).Round(100*time.Millisecond))
				}
				for _, n := range []int{0, 2, 9, 9, 1, 0} {
					read(n)
				}
				r.Body.Close()
				read(1)
				read(0)
			})})
		p := st.Dial(st.at)
		if chunked {
			p.Write([]byte(post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"))
		} else {
			p.Write([]byte(post + "Content-Length: 6\r\n\r\nabc"))
		}
		st.RunFor(100 * time.Millisecond)
		if last := "3\r\ndef\r\n0\r\n\r\n"; chunked {
			p.Write([]byte(last))
		} else {
			p.Write([]byte("def"))
		}
		st.RunFor(time.Second)
		const closed = " http: invalid Read on closed Body"
		want := []string{" <nil>", "ab <nil>", "c <nil>", "def EOF", " EOF", " EOF", closed, closed}
		if fmt.Sprint(reads) != fmt.Sprint(want) {
			t.Errorf("chunked %v: got %q, want %q", chunked, reads, want)
		}
		if len(seen) == 8 && (seen[2] != 0 || seen[3] != 100*time.Millisecond) {
			t.Errorf("chunked %v: reads returned after %v", chunked, seen)
		}
		p.Close()
	}
}

// A trailer is there when the body has been read, and not before: the fields that came, and the
// names of those that were announced.
func TestTrailerBehindItsBody(t *testing.T) {
	var st *stage
	before, after, again := 0, http.Header(nil), []string(nil)
	st = calmStage(t, &Server{Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.ReadFull(r.Body, make([]byte, 3))
			st.wait(100 * time.Millisecond)
			before = len(r.Trailer.Get("X-Sum"))
			io.ReadAll(r.Body)
			after = r.Trailer.Clone()
			delete(r.Trailer, "X-Sum")
			r.Body.Read(make([]byte, 1))
			again = r.Trailer["X-Sum"]
		})})
	for announced, want := range map[string]string{"": "map[X-Sum:[4 four]]",
		"Trailer: X-None, X-Sum\r\n": "map[X-None:[] X-Sum:[4 four]]"} {
		p := st.Dial(st.at)
		p.Write([]byte(post + announced + "Transfer-Encoding: chunked\r\n\r\n" +
			"3\r\nabc\r\n1\r\nd\r\n0\r\nX-Sum: 4\r\nx-sum: four\r\n\r\n"))
		st.RunFor(time.Second)
		if before != 0 || fmt.Sprint(after) != want || again != nil {
			t.Errorf("%q: before the end %d bytes, after it %v, want %s; deleted, and there again: %v", announced,
				before, after, want, again)
		}
		p.Close()
	}
}

// MaxBodyBytes lets a body of that length pass. A longer one is refused by its Content-Length, or
// fails where it becomes too long.
func TestMaxBodyBytesToTheByte(t *testing.T) {
	for size, fails := range map[int]bool{1: false, 10: false, 11: true, 200: true} {
		var st *stage
		var failed error
		ran := false
		st = calmStage(t, &Server{Dispatch: DispatchPool, MaxBodyBytes: 10,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ran = true
				_, failed = io.ReadAll(r.Body)
			})})
		p := st.Dial(st.at)
		p.Write([]byte(post + "Transfer-Encoding: chunked\r\n\r\n" +
			fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", size, strings.Repeat("b", size))))
		st.RunFor(time.Second)
		e, ok := errors.AsType[*http.MaxBytesError](failed)
		if !ran || ok != fails || ok && e.Limit != 10 || !ok && failed != nil || p.Ended() != fails {
			t.Errorf("%d bytes in a chunk: %v; the connection has ended: %v", size, failed, p.Ended())
		}
		ran = false
		q := st.Dial(st.at)
		q.Write([]byte(post + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", size, strings.Repeat("b", size))))
		st.RunFor(time.Second)
		if ran == fails || strings.HasPrefix(string(q.Received()), "HTTP/1.1 413 ") != fails {
			t.Errorf("%d bytes: ran %v, %.20q", size, ran, q.Received())
		}
		p.Close()
		q.Close()
	}
}

// An answer waits for a body that its handler has not read, for five seconds at most, so that it
// can promise the connection. It does not wait for one that is long.
func TestAnswerWaitsForTheBody(t *testing.T) {
	for _, tc := range []struct {
		length, rest int
		answered     time.Duration
		kept         bool
	}{{10, 7, time.Second, true}, {3 + 2*exchange.MaxBodyBuffer, 2 * exchange.MaxBodyBuffer, time.Second, true},
		{10, 6, exchange.StopTimeout, false}, {exchange.MaxDiscard + 3, 0, exchange.StopTimeout, false},
		{exchange.MaxDiscard + 4, 0, 0, false}} {
		t.Run(fmt.Sprint(tc.length, ", ", tc.rest), func(t *testing.T) {
			st := calmStage(t, &Server{Dispatch: DispatchPool,
				Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
			p := st.Dial(st.at)
			p.Write([]byte(post + fmt.Sprintf("Content-Length: %d\r\n\r\nabc", tc.length)))
			const step = 100 * time.Millisecond
			var took time.Duration
			for ; p.Count() == 0 && took < time.Minute; took += step {
				if took == time.Second {
					p.Write(make([]byte, tc.rest))
				}
				st.RunFor(step)
			}
			if took -= step; took != tc.answered {
				t.Errorf("answered after %v, want %v", took, tc.answered)
			}
			kept := !strings.Contains(string(p.Received()), "\r\nConnection: close\r\n")
			if kept != tc.kept {
				t.Errorf("the answer keeps the connection: %v", kept)
			}
			p.Close()
		})
	}
}
