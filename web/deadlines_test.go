package web

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// A replaceable handler is that of a server which serves already.
type replaceable struct {
	h atomic.Pointer[http.HandlerFunc]
}

func (p *replaceable) set(h http.HandlerFunc) { p.h.Store(&h) }

func (p *replaceable) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*p.h.Load())(w, r) }

// kindOf is err in the words that both servers share.
func kindOf(err error) string {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "deadline"
	}
	return fmt.Sprint(err)
}

// passing is longer than the deadlines of these tests: that they pass is what is tested.
const passing = 30 * time.Millisecond

// A write deadline that passes while its handler does not write does no harm if it is moved before
// the next write: so events are sent each with a deadline of its own.
func TestMovedWriteDeadlinesLikeNetHTTP(t *testing.T) {
	t.Parallel()
	var handler replaceable
	sameOnBoth(t, func(s *Server) { s.WriteTimeout, s.Handler = time.Millisecond, &handler },
		func(t *testing.T, f *fixture, r *record) {
			handler.set(func(w http.ResponseWriter, q *http.Request) {
				c := http.NewResponseController(w)
				for i := range 3 {
					time.Sleep(passing)
					c.SetWriteDeadline(time.Now().Add(time.Hour))
					_, err := fmt.Fprintf(w, "event %d\n", i)
					r.add("%v, %v, %v", kindOf(err), kindOf(c.Flush()), q.Context().Err())
					c.SetWriteDeadline(time.Now().Add(time.Millisecond))
				}
				time.Sleep(passing)
				c.SetWriteDeadline(time.Now().Add(time.Hour))
			})
			nc := dial(t, f)
			io.WriteString(nc, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"+
				"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
			got, err := io.ReadAll(nc)
			r.answers(string(got), "GET", "GET")
			r.add("%v", err)
		})
}

// So it is with a read deadline, also with ReadTimeout, and nothing is lost of what comes
// meanwhile.
func TestMovedReadDeadlinesLikeNetHTTP(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{0, time.Millisecond} {
		var handler replaceable
		set := func(s *Server) {
			s.ReadHeaderTimeout, s.ReadTimeout, s.IdleTimeout, s.Handler = time.Hour, timeout, time.Hour, &handler
		}
		sameOnBoth(t, set, func(t *testing.T, f *fixture, r *record) {
			step := make(chan bool)
			handler.set(func(w http.ResponseWriter, q *http.Request) {
				c := http.NewResponseController(w)
				p := make([]byte, 50_000)
				for i := range 4 {
					time.Sleep(passing)
					c.SetReadDeadline(time.Now().Add(time.Hour))
					n, err := io.ReadFull(q.Body, p)
					r.add("%d %v, %v", n, kindOf(err), q.Context().Err())
					if i < 2 {
						c.SetReadDeadline(time.Now().Add(time.Millisecond))
					}
					if i < 3 {
						step <- true
					}
				}
			})
			nc := dial(t, f)
			io.WriteString(nc, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 150000\r\n\r\n")
			for range 3 {
				io.WriteString(nc, strings.Repeat("b", 50_000))
				<-step
			}
			in := bufio.NewReader(nc)
			for range 2 {
				resp, err := http.ReadResponse(in, nil)
				r.add("%s %v %t", mustBody(t, resp, err), resp.Status, resp.Close)
				if handler.set(func(http.ResponseWriter, *http.Request) {}); !resp.Close {
					io.WriteString(nc, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
				}
			}
		})
	}
}

// A read that has failed for its deadline fails until that is moved, whatever comes meanwhile, and
// then goes on where the body was.
func TestReadsBehindTheirDeadlineLikeNetHTTP(t *testing.T) {
	var handler replaceable
	sameOnBoth(t, func(s *Server) { s.Handler = &handler }, func(t *testing.T, f *fixture, r *record) {
		late, came := make(chan bool), make(chan bool)
		handler.set(func(w http.ResponseWriter, q *http.Request) {
			c, p := http.NewResponseController(w), make([]byte, 4)
			c.SetReadDeadline(time.Unix(1, 0))
			if g, ours := w.(*exchange.Given); ours {
				for x := g.Out.Load().X; !x.Body.IsLate(); { // or what comes may have come before
					time.Sleep(time.Millisecond)
				}
			}
			late <- true
			<-came
			for range 2 {
				n, err := q.Body.Read(p)
				r.add("%d %v, %v", n, kindOf(err), q.Context().Err())
			}
			c.SetReadDeadline(time.Time{})
			n, err := io.ReadFull(q.Body, p)
			r.add("%d %v, %v", n, kindOf(err), q.Context().Err())
		})
		nc := dial(t, f)
		io.WriteString(nc, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n")
		<-late
		io.WriteString(nc, "body")
		time.Sleep(passing) // let it come
		came <- true
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		r.add("%s %v", mustBody(t, resp, err), resp.Status)
	})
}

// The time for the answer runs while the body is still coming, and when the handler sets it itself.
func TestWriteTimeoutWhileTheBodyComes(t *testing.T) {
	for _, own := range []bool{false, true} {
		wrote := make(chan error, 1)
		s := &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if own {
				http.NewResponseController(w).SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			}
			p := make([]byte, 64<<10)
			for {
				if _, err := w.Write(p); err != nil {
					wrote <- err
					return
				}
			}
		})}
		if !own {
			s.WriteTimeout = 50 * time.Millisecond
		}
		f := serve(t, s)
		c := dial(t, f)
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nhello")
		if err := <-wrote; err == nil {
			t.Error("no error")
		}
	}
}

// What a handler has written in time is sent, however late the loop comes to it. WriteTimeout is
// for clients that do not read.
func TestWriteTimeoutOnALateLoop(t *testing.T) {
	const clients = 300
	o := sim.Calm()
	o.MaxSteps, o.Workers, o.Queue, o.Backlog = 1<<30, clients, clients, clients
	w := newWorld(1, o)
	engine, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	var wait []driver.Parker // of handlers, so that all write at once
	var began time.Time
	inTime := map[string]bool{} // by path: its handler has written half a second before the timeout
	s := &Server{Engine: engine, Dispatch: DispatchPool, WriteTimeout: 3 * time.Second,
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			p := w.NewParker()
			wait = append(wait, p)
			p.Park()
			io.WriteString(rw, "in time")
			inTime[r.URL.Path] = w.Now().Sub(began) < 2500*time.Millisecond
		})}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	peers := make([]*sim.Peer, clients)
	for i := range peers {
		peers[i] = w.Dial(ln.Addr())
	}
	w.RunFor(time.Second)
	began = w.Now()
	for i, p := range peers {
		p.Write(fmt.Appendf(nil, "GET /%d HTTP/1.1\r\nHost: h\r\n\r\n", i))
	}
	w.RunFor(100 * time.Millisecond)
	w.SetCosts(sim.Costs{Send: 20 * time.Millisecond}) // 6 s for all
	for _, p := range wait {
		p.Unpark()
	}
	w.RunFor(20 * time.Second)
	late := 0
	for i, p := range peers {
		if !inTime[fmt.Sprint("/", i)] {
			late++
		} else if got := string(p.Received()); !strings.HasSuffix(got, "in time") {
			t.Fatalf("client %d has got %q: %v", i, got, p.Err())
		}
		p.Close()
	}
	if late > clients/3 {
		t.Errorf("%d of %d handlers were late", late, clients)
	}
	w.SetCosts(sim.Costs{})
	if err := s.Shutdown(atLength(t)); err != nil {
		t.Error(err)
	}
	if err := engine.Shutdown(atLength(t)); err != nil {
		t.Error(err)
	}
	w.Settle()
	w.Check(t)
}
