package web

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/driver/sim"
)

// This file is what happens in a line of pipelined requests when it has room again.

// A request that waits for room in the line begins as soon as the first is answered, also if those
// between still run.
func TestLineFillsUp(t *testing.T) {
	var st *stage
	var began time.Duration
	var opened time.Time
	st = calmStage(t, &Server{PipelineDepth: 2, Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/0":
				opened = st.Now()
				st.wait(10 * time.Millisecond)
			case "/1":
				st.wait(time.Second)
			default:
				began = st.Now().Sub(opened)
			}
		})})
	p := st.Dial(st.at)
	st.ask(p, 2*time.Second, "/0", "/1", "/2")
	if began < 10*time.Millisecond || began > 11*time.Millisecond {
		t.Errorf("the third request has begun after %v, want 10ms", began)
	}
	p.Close()
}

// A single write that is larger than what may be held is held too, if nothing of its answer is.
func TestLargeHeadIsHeld(t *testing.T) {
	field := strings.Repeat("x", 40<<10)
	var st *stage
	taken, first := false, false
	st = calmStage(t, &Server{PipelineDepth: 2, Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/first" {
				st.wait(10 * time.Millisecond)
				first = true
				return
			}
			w.Header().Set("X", field)
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			taken = !first
		})})
	p := st.Dial(st.at)
	st.ask(p, time.Second, "/first", "/field")
	if got := string(p.Received()); !taken || !strings.Contains(got, "\r\nX: "+field+"\r\n") {
		t.Errorf("taken before the first answer: %v; %d bytes came", taken, len(got))
	}
	p.Close()
}

// A held answer whose client does not read has its turn and finds no room. When there is room it
// goes, and its handler, which waits with more, goes on.
func TestHeldAnswerFindsNoRoom(t *testing.T) {
	const size = 300 << 10
	w := newWorld(1, sim.Calm())
	ended := 0
	st := newStage(t, w, w, &Server{PipelineDepth: 3, Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := size
			if r.URL.Path == "/full" {
				n = 124 << 10 // of which the sockets take less than half
			}
			w.Header().Set("Content-Length", fmt.Sprint(n))
			for p := make([]byte, 2<<10); n > 0; n -= len(p) {
				if _, err := w.Write(p); err != nil {
					t.Error(err)
				}
				w.(http.Flusher).Flush()
			}
			ended++
		})}, 64<<10)
	p := st.Dial(st.at)
	st.RunFor(time.Millisecond)
	p.StopReading()
	st.ask(p, time.Second, "/full", "/1", "/2")
	if queued := st.conn.Queued(); ended != 1 || queued <= 32<<10 {
		t.Fatalf("not what the test is about: %d handlers have ended, %d bytes are queued", ended, queued)
	}
	p.Resume()
	st.RunFor(time.Second)
	got := answers(t, string(p.Received()))
	if len(got) != 3 || len(got[1]) != size || len(got[2]) != size || ended != 3 {
		t.Errorf("%d answers, %d handlers have ended", len(got), ended)
	}
	p.Close()
}

// A promoted request has its WriteTimeout also if the one before it has switched its own off. And
// without a WriteTimeout there is none.
func TestTimeoutsArePromoted(t *testing.T) {
	for _, depth := range []int{1, 3} {
		for _, timeout := range []time.Duration{0, time.Second} {
			var st *stage
			var failed error
			st = calmStage(t, &Server{PipelineDepth: depth, WriteTimeout: timeout, Dispatch: DispatchPool,
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/large" {
						_, failed = w.Write(make([]byte, 4<<20))
						return
					}
					http.NewResponseController(w).SetWriteDeadline(time.Time{})
					st.wait(time.Millisecond)
				})})
			p := st.Dial(st.at)
			p.StopReading()
			st.ask(p, time.Minute, "/0", "/large")
			if (timeout > 0) != errors.Is(failed, os.ErrDeadlineExceeded) || timeout == 0 && failed != nil {
				t.Errorf("depth %d, WriteTimeout %v: %v after a minute", depth, timeout, failed)
			}
			p.Reset()
			st.RunFor(time.Second)
		}
	}
}
