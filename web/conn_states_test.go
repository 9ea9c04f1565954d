package web

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

// ConnState is told that a connection is closed when its handler has ended, not when its client has
// gone, as by net/http.
func TestStatesOfHandlersThatOutliveLikeNetHTTP(t *testing.T) {
	for _, reset := range []bool{true, false} {
		var handler replaceable
		states := make(chan http.ConnState, 1)
		set := func(s *Server) {
			s.Handler = &handler
			s.ConnState = func(_ net.Conn, state http.ConnState) { states <- state }
		}
		sameOnBoth(t, set, func(t *testing.T, f *fixture, r *record) {
			began, gone, ended := make(chan bool), make(chan bool), make(chan bool)
			handler.set(func(w http.ResponseWriter, q *http.Request) {
				began <- true
				<-q.Context().Done()
				<-gone
				time.Sleep(passing) // for callers that do not wait for it
				r.add("the handler ends")
				close(ended)
			})
			nc := dial(t, f)
			io.WriteString(nc, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			r.add("%v, %v", <-states, <-states)
			<-began
			if closeWrite(nc); reset {
				nc.(*net.TCPConn).SetLinger(0)
				nc.Close()
			}
			close(gone)
			for state := http.StateActive; state != http.StateClosed; {
				state = <-states
				select {
				case <-ended:
					r.add("%v", state)
				default:
					r.add("%v before the handler has ended", state)
				}
			}
		})
	}
}

// Of several handlers the last one counts, and Shutdown waits until ConnState has heard of it.
func TestStatesOfALineThatOutlives(t *testing.T) {
	const line = 5
	began, goOn, states := make(chan bool), make(chan bool), make(chan http.ConnState, 10)
	f := serve(t, &Server{
		PipelineDepth: line,
		ConnState:     func(_ net.Conn, state http.ConnState) { states <- state },
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			began <- true
			<-goOn
		}),
	})
	nc := dial(t, f)
	io.WriteString(nc, strings.Repeat("GET / HTTP/1.1\r\nHost: h\r\n\r\n", line))
	for range line {
		<-began
	}
	nc.(*net.TCPConn).SetLinger(0)
	nc.Close()
	for f.Engine.Stats().Conns > 0 {
		time.Sleep(time.Millisecond)
	}
	for range line {
		if len(states) != 2 {
			t.Fatal("ConnState hears of an end while handlers run")
		}
		goOn <- true
	}
	if err := f.Shutdown(atLength(t)); err != nil || len(states) != 3 {
		t.Fatalf("behind Shutdown (%v) ConnState has heard of %d states, want 3", err, len(states))
	}
	if got := fmt.Sprint(<-states, <-states, <-states); got != fmt.Sprint(http.StateNew, http.StateActive,
		http.StateClosed) {
		t.Error(got)
	}
}

// A tardyListener gives out what it has accepted when it has been closed.
type tardyListener struct {
	net.Listener
	accepted chan net.Conn
	closed   chan struct{}
	hold     func()
}

func (l *tardyListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err == nil {
		l.accepted <- nc
		<-l.closed
		l.hold()
	}
	return nc, err
}

func (l *tardyListener) Close() error {
	close(l.closed)
	return l.Listener.Close()
}

// acceptedLate is a request on a connection that Serve is given when s ends, and hold has returned.
func acceptedLate(t *testing.T, s serves, hold func()) (nc net.Conn) {
	t.Helper()
	l := &tardyListener{accepted: make(chan net.Conn, 1), closed: make(chan struct{}), hold: hold}
	nc = dial(t, &fixture{addr: begin(t, s, func(ln net.Listener) net.Listener { l.Listener = ln; return l })})
	io.WriteString(nc, get+end)
	<-l.accepted
	return nc
}

// Close leaves no connection behind, whenever it is opened.
func TestCloseEndsLateComers(t *testing.T) {
	for _, d := range dispatches {
		s := &Server{Handler: http.NotFoundHandler(), Dispatch: d}
		prepare(t, s, myriad.Config{Loops: 1})
		closed := make(chan struct{})
		nc := acceptedLate(t, s, func() { <-closed })
		s.Close()
		turnOfLane(s)
		close(closed)
		if all, err := io.ReadAll(nc); err == nil || len(all) > 0 {
			t.Errorf("%v: got %q, %v", d, all, err)
		}
	}
}

// turnOfLane waits until the first loop has done what it was asked before.
func turnOfLane(s *Server) {
	done := make(chan struct{})
	s.state.lanes[0].Loop.Post(func() { close(done) })
	<-done
}
