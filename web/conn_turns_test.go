package web

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/web/internal/exchange"
)

// This file is how a connection goes on from one request to the next: the rest of a body, the
// client's FIN, and the time between two requests.

// codes is the status codes of the answers that p holds.
func codes(t *testing.T, p []byte) (all []int) {
	t.Helper()
	for r := bufio.NewReader(bytes.NewReader(p)); ; {
		if _, err := r.Peek(1); err == io.EOF {
			return all
		}
		resp, err := http.ReadResponse(r, nil)
		mustBody(t, resp, err)
		all = append(all, resp.StatusCode)
	}
}

// promised answers at once, with a head that keeps the connection, and goes on with f.
func promised(f func(w http.ResponseWriter, r *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 0 {
			r.Body.Read(make([]byte, 1))
		}
		w.Header().Set("Content-Length", "0")
		w.(http.Flusher).Flush()
		f(w, r)
	}
}

// A body that is larger than what waits for its reader comes whole, and the next request is
// answered. It makes no difference when the reader begins, or how much it reads at a time.
func TestLargeBodyWaitsForItsReader(t *testing.T) {
	const size = 5 * exchange.MaxBodyBuffer
	for depth, piece := range map[int]int{1: 1 << 10, 2: size, 4: 1 << 10} {
		var st *stage
		st = calmStage(t, &Server{PipelineDepth: depth, Dispatch: DispatchPool,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				st.wait(10 * time.Millisecond)
				n, err := 0, error(nil)
				for p := make([]byte, piece); err == nil; {
					var more int
					more, err = r.Body.Read(p)
					n += more
				}
				fmt.Fprint(w, n, " ", err)
			})})
		p := st.Dial(st.at)
		p.Write([]byte(post + fmt.Sprintf("Content-Length: %d\r\n\r\n", size) + strings.Repeat("b", size) + get +
			"\r\n"))
		st.RunFor(time.Second)
		if got := answers(t, string(p.Received())); fmt.Sprint(got) != fmt.Sprintf("[%d EOF 0 EOF]", size) {
			t.Errorf("depth %d: got %q", depth, got)
		}
		p.Close()
	}
}

// What a handler leaves of a body is read away, up to maxDiscard, if its answer has promised to
// keep the connection. Beyond that the connection ends.
func TestRestOfABody(t *testing.T) {
	const full = 2 * exchange.MaxBodyBuffer // so that the loop has stopped reading
	for _, tc := range []struct {
		first, rest int
		kept        bool
	}{{full, 1, true}, {full, exchange.MaxDiscard - full, true}, {full, 8 * exchange.MaxDiscard, false}, {10,
		exchange.MaxDiscard, true},
		{10, exchange.MaxDiscard + 1, false}} {
		t.Run(fmt.Sprint(tc.first, "+", tc.rest), func(t *testing.T) {
			first, rest, kept := tc.first, tc.rest, tc.kept
			var st *stage
			st = calmStage(t, &Server{Dispatch: DispatchPool,
				Handler: promised(func(http.ResponseWriter, *http.Request) { st.wait(10 * time.Millisecond) })})
			p := st.Dial(st.at)
			p.Write([]byte(post + fmt.Sprintf("Content-Length: %d\r\n\r\n", first+rest) + strings.Repeat("b", first)))
			st.RunFor(time.Second)
			if p.Ended() == kept {
				t.Fatalf("the connection has ended: %v", p.Ended())
			}
			p.Write([]byte(strings.Repeat("b", rest) + get + "\r\n"))
			st.RunFor(time.Second)
			if got := len(codes(t, p.Received())); got != 1 && !kept || got != 2 && kept {
				t.Errorf("%d answers", got)
			}
			p.Close()
		})
	}
}

// The rest of a body that does not come is waited for during ReadTimeout, or five seconds.
func TestRestOfABodyInTime(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Second, 20 * time.Second} {
		s := &Server{Dispatch: DispatchPool, ReadTimeout: timeout,
			Handler: promised(func(http.ResponseWriter, *http.Request) {})}
		st := calmStage(t, s)
		p := st.Dial(st.at)
		p.Write([]byte(post + "Content-Length: 10\r\n\r\nabc"))
		within := exchange.FirstOf(timeout, exchange.StopTimeout)
		st.RunFor(within - 10*time.Millisecond)
		if p.Ended() {
			t.Errorf("ReadTimeout %v: the connection has ended before %v", timeout, within)
		}
		st.RunFor(20 * time.Millisecond)
		if !p.Ended() {
			t.Errorf("ReadTimeout %v: the connection is open after %v", timeout, within)
		}
		p.Close()
	}
}

// A client that ends its side in the middle of a body has the answer, and then the end: there is
// nothing to wait for.
func TestEndInTheMiddleOfABody(t *testing.T) {
	var st *stage
	st = calmStage(t, &Server{Dispatch: DispatchPool,
		Handler: promised(func(http.ResponseWriter, *http.Request) { st.wait(10 * time.Millisecond) })})
	p := st.Dial(st.at)
	p.Write([]byte(post + "Content-Length: 10\r\n\r\nabc"))
	st.RunFor(5 * time.Millisecond)
	p.CloseWrite()
	st.RunFor(time.Second)
	if got := codes(t, p.Received()); len(got) != 1 || !p.Ended() {
		t.Errorf("answers %v; the connection has ended: %v", got, p.Ended())
	}
}

// A client sends more behind a request that is being answered, and then FIN. The server answers a
// complete request, refuses an incomplete head, and gives the reader of an incomplete body an
// error.
func TestEndBehindAnAnswer(t *testing.T) {
	for _, tc := range []struct {
		behind string
		want   string
	}{
		{"", "[200]"},
		{get + "\r\n", "[200 200]"},
		{"GET / HT", "[200 400]"},
		{post + "Content-Length: 10\r\n\r\nabc", "[200 200] unexpected EOF"},
		{post + "Content-Length: 3\r\n\r\nabc", "[200 200]"},
		{get + "\r\n" + post + "Content-Length: 10\r\n\r\nabc", "[200 200 200] unexpected EOF"},
	} {
		for _, depth := range []int{1, 3} {
			t.Run(fmt.Sprintf("%.12q, depth %d", tc.behind, depth), func(t *testing.T) {
				var st *stage
				cut := ""
				st = calmStage(t, &Server{PipelineDepth: depth, Dispatch: DispatchPool,
					Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						st.wait(10 * time.Millisecond)
						if _, err := io.ReadAll(r.Body); err != nil {
							cut = " " + err.Error()
						}
					})})
				p := st.Dial(st.at)
				p.Write([]byte(get + "\r\n" + tc.behind))
				p.CloseWrite()
				st.RunFor(time.Second)
				if got := fmt.Sprint(codes(t, p.Received()), cut); got != tc.want || !p.Ended() {
					t.Errorf("got %s, want %s; the connection has ended: %v", got, tc.want, p.Ended())
				}
			})
		}
	}
}

// A body that begins behind a request which is being answered, and comes to its end later, is
// whole.
func TestBodyBehindAnAnswer(t *testing.T) {
	var st *stage
	st = calmStage(t, &Server{Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			st.wait(10 * time.Millisecond)
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %v", body, err)
		})})
	p := st.Dial(st.at)
	p.Write([]byte(get + "\r\n" + post + "Content-Length: 6\r\n\r\nabc"))
	st.RunFor(100 * time.Millisecond)
	p.Write([]byte("def"))
	st.RunFor(time.Second)
	if got := answers(t, string(p.Received())); fmt.Sprint(got) != "[ <nil> abcdef <nil>]" {
		t.Errorf("got %q", got)
	}
	p.Close()
}

// A handler switches keep-alives off after its head has promised to keep the connection. The server
// still answers the request that waits behind it, and then closes the connection.
func TestKeepAlivesSwitchedOffBehindTheHead(t *testing.T) {
	for _, line := range [][]string{{"/off"}, {"/off", "/behind"}} {
		var s *Server
		var st *stage
		s = &Server{Dispatch: DispatchPool, Handler: promised(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/off" {
				s.SetKeepAlivesEnabled(false)
			}
			st.wait(time.Millisecond)
		})}
		st = calmStage(t, s)
		p := st.Dial(st.at)
		st.ask(p, time.Second, line...)
		if got := codes(t, p.Received()); len(got) != len(line) || !p.Ended() {
			t.Errorf("%d answers to %q; the connection has ended: %v", len(got), line, p.Ended())
		}
		p.Close()
	}
}

// The time between two requests is IdleTimeout, each time anew, and no request has less for it. A
// connection is idle between two requests, and not in a line of them.
func TestTimeBetweenRequests(t *testing.T) {
	const idle = time.Second
	for _, depth := range []int{1, 3} {
		var st *stage
		st = calmStage(t, &Server{PipelineDepth: depth, Dispatch: DispatchPool, IdleTimeout: idle,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/long" {
					st.wait(2 * idle)
				}
			})})
		p := st.Dial(st.at)
		st.ask(p, idle*9/10, "/0")
		st.ask(p, idle*9/10, "/1")
		st.ask(p, 2*idle+idle*9/10, "/long", "/2")
		if got := codes(t, p.Received()); len(got) != 4 || p.Ended() {
			t.Errorf("%d answers; the connection has ended: %v", len(got), p.Ended())
		}
		st.RunFor(idle / 5)
		if !p.Ended() {
			t.Errorf("the connection is open %v after the last answer", idle*11/10)
		}
		p.Close()
		st.RunFor(time.Second)
		if want := "[new active idle active idle active idle closed]"; fmt.Sprint(st.states) != want {
			t.Errorf("states %v, want %v", st.states, want)
		}
	}
}

// A client that asks for more while its first request is served is not read beyond what may be kept
// ahead, and all that it has asked is answered.
func TestFarAhead(t *testing.T) {
	const n = 1000
	for _, depth := range []int{1, 8} {
		var st *stage
		first := true
		st = calmStage(t, &Server{PipelineDepth: depth, Dispatch: DispatchPool,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if first {
					first = false
					st.wait(10 * time.Millisecond)
				}
				w.Header()["Date"] = nil
			})})
		p := st.Dial(st.at)
		p.Write([]byte(strings.Repeat(get+strings.Repeat("A: "+strings.Repeat("x", 80)+"\r\n", 3)+"\r\n", n)))
		st.RunFor(5 * time.Millisecond)
		if p.Unsent() == 0 {
			t.Errorf("depth %d: all is read while the first request is served", depth)
		}
		st.RunFor(10 * time.Second)
		if got := codes(t, p.Received()); len(got) != n {
			t.Errorf("depth %d: %d answers, want %d", depth, len(got), n)
		}
		p.Close()
	}
}

// A Stream is written and closed by others than its handler. It has no deadline; what has lined up
// behind it is answered, and the connection goes on, unless the client has asked for its end.
func TestBehindAStream(t *testing.T) {
	for _, depth := range []int{1, 3} {
		for _, end := range []string{"", "Connection: close\r\n"} {
			t.Run(fmt.Sprint("depth ", depth, " ", end), func(t *testing.T) {
				var stream *Stream
				st := calmStage(t, &Server{PipelineDepth: depth, Dispatch: DispatchPool, WriteTimeout: time.Second,
					IdleTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						switch r.URL.Path {
						case "/stream":
							var err error
							if stream, err = Detached(w); err != nil {
								t.Error(err)
							}
						case "/close":
							_, err := io.WriteString(stream, "hello")
							if err = errors.Join(err, stream.Close()); err != nil {
								t.Error(err)
							}
						}
						io.WriteString(w, r.URL.Path)
					})})
				p := st.Dial(st.at)
				st.ask(p, 0, "/before")
				p.Write([]byte("GET /stream HTTP/1.1\r\nHost: h\r\n" + end + "\r\n"))
				st.ask(p, time.Minute, "/behind", "/last")
				if stream == nil || p.Ended() {
					t.Fatalf("the stream has begun: %v; its connection has ended: %v", stream != nil, p.Ended())
				}
				other := st.Dial(st.at)
				st.ask(other, time.Second/2, "/close")
				want := "[/before hello /behind /last]"
				if end != "" {
					want = "[/before hello]"
				}
				if got := answers(t, string(p.Received())); fmt.Sprint(got) != want || p.Ended() != (end != "") {
					t.Errorf("got %q, want %s; the connection has ended: %v", got, want, p.Ended())
				}
				st.RunFor(time.Second)
				if !p.Ended() {
					t.Error("the connection is open beyond IdleTimeout")
				}
				p.Close()
				other.Close()
			})
		}
	}
}

// A Stream that is closed before its handler returns has ended then, and the next request is
// answered.
func TestStreamOfItsHandler(t *testing.T) {
	for _, d := range []Dispatch{DispatchPool, DispatchInline} {
		st := calmStage(t, &Server{Dispatch: d, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			stream, err := Detached(w)
			if err != nil {
				t.Error(err)
				return
			}
			io.WriteString(stream, r.URL.Path)
			stream.Close()
		})})
		p := st.Dial(st.at)
		for range 2 {
			st.ask(p, 10*time.Millisecond, "/0")
			st.ask(p, 10*time.Millisecond, "/1", "/2")
			if got := answers(t, string(p.TakeReceived())); fmt.Sprint(got) != "[/0 /1 /2]" {
				t.Errorf("%v: got %q", d, got)
			}
		}
		p.Close()
	}
}
