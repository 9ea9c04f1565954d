package web

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

// This file is how a line of pipelined requests goes on from one to the next.

// A request with "Content-Length: 0" has no body: it begins beside the one before it.
func TestEmptyBodyLinesUp(t *testing.T) {
	var st *stage
	running, most := 0, 0
	st = calmStage(t, &Server{PipelineDepth: 2, Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running++
			most = max(most, running)
			st.wait(time.Millisecond)
			running--
		})})
	p := st.Dial(st.at)
	p.Write([]byte(strings.Repeat(post+"Content-Length: 0\r\n\r\n", 2)))
	st.RunFor(time.Second)
	if got := answers(t, string(p.Received())); len(got) != 2 || most != 2 {
		t.Errorf("%d answers, %d ran together; want 2 of each", len(got), most)
	}
	p.Close()
}

// Wherever its handlers run, each request of a line is handled once, in order, and answered.
func TestLineRunsOnce(t *testing.T) {
	const n = 9
	for _, d := range []Dispatch{DispatchPool, DispatchInline, DispatchAuto} {
		for _, depth := range []int{1, 4} {
			t.Run(fmt.Sprint(d, ", depth ", depth), func(t *testing.T) {
				var st *stage
				ran := ""
				st = calmStage(t, &Server{PipelineDepth: depth, Dispatch: d,
					Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if ran += r.URL.Path; d != DispatchAuto && st.onLoop() != (d == DispatchInline) {
							t.Errorf("%s on the loop: %v", r.URL.Path, st.onLoop())
						}
						io.WriteString(w, r.URL.Path)
					})})
				p := st.Dial(st.at)
				for range 2 {
					st.ask(p, time.Second, paths(n)...)
					if got := answers(t, string(p.TakeReceived())); fmt.Sprint(got) != fmt.Sprint(paths(n)) {
						t.Errorf("got %q", got)
					}
					if want := strings.Join(paths(n), ""); depth == 1 && ran != want || len(ran) != len(want) {
						t.Errorf("these ran: %s", ran)
					}
					ran = ""
				}
				p.Close()
			})
		}
	}
}

// Requests that wait behind a Stream are dispatched anew. The next one has the whole WriteTimeout.
func TestWriteTimeoutBehindStream(t *testing.T) {
	const timeout = 10 * time.Millisecond
	for took, want := range map[time.Duration]error{timeout - time.Millisecond: nil,
		timeout + time.Millisecond: os.ErrDeadlineExceeded} {
		var st *stage
		var failed error
		st = calmStage(t, &Server{WriteTimeout: timeout, Dispatch: DispatchPool,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/stream":
					stream, err := Detached(w)
					st.wait(timeout / 2)
					if err = errors.Join(err, stream.Close()); err != nil {
						t.Error(err)
					}
				case "/next":
					st.wait(took)
					_, err := w.Write([]byte("next"))
					failed = errors.Join(err, http.NewResponseController(w).Flush())
				}
			})})
		p := st.Dial(st.at)
		st.ask(p, time.Second, "/first", "/stream", "/next")
		if got := codes(t, p.Received()); !errors.Is(failed, want) || len(got) == 3 != (want == nil) {
			t.Errorf("after %v: %v, %d answers", took, failed, len(got))
		}
		p.Close()
	}
}

// A recorder keeps what it receives, to the end of its connection.
type recorder struct {
	got []byte
}

func (k *recorder) Opened(*myriad.Conn)               {}
func (k *recorder) Received(_ *myriad.Conn, p []byte) { k.got = append(k.got, p...) }
func (k *recorder) Closed(*myriad.Conn, error)        {}

// A handler takes the connection over while requests wait behind its own. It gets their bytes as
// they were sent, and then the bytes that came later, whether their handlers have begun or not.
func TestUpgradeGetsTheLine(t *testing.T) {
	for _, depth := range []int{1, 2, 8} {
		t.Run(fmt.Sprint("depth ", depth), func(t *testing.T) {
			var st *stage
			next := new(recorder)
			st = calmStage(t, &Server{PipelineDepth: depth, Dispatch: DispatchPool,
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != "/upgrade" {
						return
					}
					st.wait(10 * time.Millisecond)
					if err := Upgrade(w, []byte(switching), next); err != nil {
						t.Error(err)
					}
				})})
			p := st.Dial(st.at)
			st.ask(p, time.Second, "/a", "/b") // so that the fields are cached
			p.TakeReceived()
			rest := get + "\r\n" + get + "\r\n" + post + "Content-Length: 3\r\n\r\nabc" + "neither"
			st.ask(p, 0, "/upgrade")
			p.Write([]byte(rest))
			st.RunFor(time.Second)
			if string(next.got) != rest || string(p.Received()) != switching {
				t.Errorf("the new handler got %q, want %q; the client got %q", next.got, rest, p.Received())
			}
			p.Write([]byte(" more"))
			st.RunFor(time.Second)
			if string(next.got) != rest+" more" {
				t.Errorf("then it got %q", next.got[min(len(rest), len(next.got)):])
			}
			p.Close()
		})
	}
}
