package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// This file is how the body of an answer leaves, in fake time.

// What a handler writes is gathered up to 2 KiB: an answer within that has a Content-Length, a
// larger one comes in chunks. However it is cut, it comes whole and in order.
func TestGatheredAnswers(t *testing.T) {
	for _, tc := range []struct {
		pieces []int // -1: Flush
		length bool
	}{
		{[]int{1}, true}, {[]int{exchange.BodyBuffer}, true}, {[]int{exchange.BodyBuffer + 1}, false},
		{[]int{100, exchange.BodyBuffer - 100}, true}, {[]int{100, exchange.BodyBuffer - 99}, false},
		{[]int{10, 20, 30, 40}, true}, {[]int{10, 400, 10}, true}, {[]int{400, 100, 100, 100}, true},
		{[]int{300, 300, 300, 300, 300}, true}, {[]int{2000, 40, 8}, true}, {[]int{2000, 40, 9}, false},
		{[]int{-1, 10, 20}, false}, {[]int{-1, 300, 400, 2000}, false}, {[]int{-1, 10, 3 * exchange.PieceBytes}, false},
		{[]int{-1, 10, -1, 20, 4000, 30}, false}, {[]int{exchange.PieceBytes}, false}, {[]int{2 * exchange.PieceBytes,
			1}, false},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			before := buf.InUse()
			sum := 0
			st := calmStage(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				for _, n := range tc.pieces {
					if n < 0 {
						w.(http.Flusher).Flush()
						continue
					}
					if m, err := w.Write(alphabet(sum, n)); m != n || err != nil {
						t.Errorf("%v: Write(%d): %d, %v", tc.pieces, n, m, err)
					}
					sum += n
				}
			})})
			p := st.Dial(st.at)
			p.Write([]byte(method + " / HTTP/1.1\r\nHost: h\r\n\r\n"))
			st.RunFor(time.Second)
			head, body, _ := strings.Cut(string(p.Received()), "\r\n\r\n")
			if has := strings.HasSuffix(head, fmt.Sprintf("\r\nContent-Length: %d", sum)); has != tc.length {
				t.Errorf("%s, %v: the head has the length: %v, %q", method, tc.pieces, has, head)
			}
			if method == "HEAD" {
				if body != "" {
					t.Errorf("%v: HEAD was answered with %q", tc.pieces, body)
				}
			} else if got := answers(t, string(p.Received())); len(got) != 1 || got[0] != string(alphabet(0, sum)) {
				t.Errorf("%v: the answer is not what was written", tc.pieces)
			}
			if n := buf.InUse() - before; n != 0 {
				t.Errorf("%s, %v: %d blocks are in use behind the answer", method, tc.pieces, n)
			}
			p.Close()
		}
	}
}

// alphabet is n bytes of a long text from its byte at on.
func alphabet(at, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte('a' + (at+i)%26)
	}
	return p
}

// A Write fails whole if it exceeds the Content-Length, or if the status permits no body, and so do
// all later ones. A Write of nothing never fails.
func TestWritesThatDoNotFit(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		length string
		writes []int
		want   string
	}{
		"exact":      {200, "5", []int{2, 3, 0}, "[2 <nil> 3 <nil> 0 <nil>]"},
		"beyond":     {200, "5", []int{2, 4, 0, 3}, "[2 <nil> 0 cl 0 <nil> 0 cl]"},
		"at once":    {200, "5", []int{6, 5}, "[0 cl 0 cl]"},
		"no content": {204, "", []int{1, 0}, "[0 none 0 <nil>]"},
		"unchanged":  {304, "", []int{1, 0}, "[0 none 0 <nil>]"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []any
			st := calmStage(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tc.length != "" {
					w.Header().Set("Content-Length", tc.length)
				}
				w.WriteHeader(tc.status)
				for _, n := range tc.writes {
					m, err := w.Write(make([]byte, n))
					said, known := map[error]string{http.ErrContentLength: "cl", http.ErrBodyNotAllowed: "none"}[err]
					if !known {
						said = fmt.Sprint(err)
					}
					got = append(got, m, said)
				}
			})})
			p := st.Dial(st.at)
			st.ask(p, time.Second, "/")
			if fmt.Sprint(got) != tc.want {
				t.Errorf("got %v, want %s", got, tc.want)
			}
			if ends := name == "beyond" || name == "at once"; p.Ended() != ends {
				t.Errorf("the connection has ended: %v", p.Ended())
			}
			p.Close()
		})
	}
}

// After the write deadline that a handler has set, its waiting Write fails, and so does each later
// one, with the error of a net.Conn. The context ends. This holds in the pool and on the loop.
func TestUnreadAnswerByItsDeadline(t *testing.T) {
	const timeout = time.Second
	for _, d := range []Dispatch{DispatchPool, DispatchInline} {
		var st *stage
		var failed, then error
		var ctx context.Context
		st = calmStage(t, &Server{Dispatch: d,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx = r.Context()
				w.Header().Set("Content-Length", fmt.Sprint(5<<20))
				c := http.NewResponseController(w)
				if err := c.SetWriteDeadline(st.Now().Add(timeout)); err != nil {
					t.Error(err)
				}
				_, failed = w.Write(make([]byte, 4<<20))
				if ctx.Err() == nil {
					t.Error("the context has not ended after a failed Write")
				}
				_, then = w.Write([]byte("more"))
			})})
		p := st.Dial(st.at)
		p.StopReading()
		st.ask(p, timeout*3/4, "/")
		if failed != nil || ctx.Err() != nil {
			t.Fatalf("%v: before the deadline: %v, %v", d, failed, ctx.Err())
		}
		st.RunFor(timeout / 2)
		for _, err := range []error{failed, then} {
			e, ok := errors.AsType[*net.OpError](err)
			if !ok || e.Op != "write" || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%v: behind the deadline: %v", d, err)
			}
		}
		p.Close()
	}
}

// A Write waits for a client that does not read. It returns when the client reads, and fails when
// the client resets the connection.
func TestWriteWaitsForItsClient(t *testing.T) {
	const size = 4 << 20
	for _, tc := range []struct {
		dispatch Dispatch
		reads    bool
	}{{DispatchPool, true}, {DispatchInline, true}, {DispatchPool, false}, {DispatchInline, false}} {
		var failed error
		done := false
		st := calmStage(t, &Server{Dispatch: tc.dispatch,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, failed = w.Write(make([]byte, size))
				_, err := io.WriteString(w, "more")
				if done = true; (err == nil) != tc.reads || (r.Context().Err() == nil) != tc.reads {
					t.Errorf("%v: then %v; the context: %v", tc.dispatch, err, r.Context().Err())
				}
			})})
		p := st.Dial(st.at)
		p.StopReading()
		if st.ask(p, time.Second, "/"); done {
			t.Fatal("the Write has not waited")
		}
		if tc.reads {
			p.Resume()
		} else {
			p.Reset()
		}
		st.RunFor(10 * time.Second)
		_, ok := errors.AsType[*net.OpError](failed)
		if !done || tc.reads == ok || tc.reads && failed != nil {
			t.Errorf("%v, the client reads: %v: done: %v, %v", tc.dispatch, tc.reads, done, failed)
		}
		if tc.reads && len(answers(t, string(p.Received()))[0]) != size+len("more") {
			t.Errorf("%v: %d bytes came", tc.dispatch, p.Count())
		}
		p.Close()
	}
}
