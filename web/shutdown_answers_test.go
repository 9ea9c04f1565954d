package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

// serves is what this server and net/http's have in common.
type serves interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
	Close() error
	RegisterOnShutdown(func())
}

// onEach runs a test with net/http's server, with this one and with every Dispatch of it.
func onEach(t *testing.T, h http.Handler, run func(t *testing.T, s serves)) {
	t.Run("net/http", func(t *testing.T) { run(t, &http.Server{Handler: h}) })
	for _, d := range dispatches {
		t.Run(d.String(), func(t *testing.T) {
			s := &Server{Handler: h, Dispatch: d}
			prepare(t, s, myriad.Config{Loops: 1})
			run(t, s)
		})
	}
}

// begin serves, and returns the address.
func begin(t *testing.T, s serves, wrap func(net.Listener) net.Listener) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(wrap(ln)) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-ended; err != http.ErrServerClosed {
			t.Errorf("Serve: %v", err)
		}
	})
	return ln.Addr().String()
}

func asItIs(l net.Listener) net.Listener { return l }

// An answer that begins when the server shuts down says that its connection ends (RFC 9112 section
// 9.6); of a line the last one does.
func TestShutdownSaysClose(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			begun <- struct{}{}
			<-goOn
		}
		io.WriteString(w, r.URL.Path)
	})
	onEach(t, h, func(t *testing.T, s serves) {
		c := dial(t, &fixture{addr: begin(t, s, asItIs)})
		ours, _ := s.(*Server)
		request, want := get+end, []string{"/ true"}
		if ours != nil && ours.Dispatch == DispatchPool { // net/http leaves those behind unanswered
			request, want = request+asks("/behind", "")+asks("/end", ""),
				[]string{"/ false", "/behind false", "/end true"}
		}
		io.WriteString(c, request)
		<-begun
		hooked := make(chan struct{})
		s.RegisterOnShutdown(sync.OnceFunc(func() { close(hooked) }))
		ended := make(chan error, 1)
		go func() { ended <- s.Shutdown(context.Background()) }()
		<-hooked
		goOn <- struct{}{}
		in := bufio.NewReader(c)
		for _, want := range want {
			resp, err := http.ReadResponse(in, nil)
			if got := fmt.Sprint(mustBody(t, resp, err), " ", resp.Close); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		if _, err := in.ReadByte(); err != io.EOF {
			t.Errorf("then %v", err)
		}
		c.Close() // or the server waits for that
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A failing listener is one whose Close says so.
type failing struct{ net.Listener }

var errFailing = errors.New("cannot be closed")

func (l failing) Close() error { return errors.Join(l.Listener.Close(), errFailing) }

// Shutdown and Close say what went wrong with closing listeners.
func TestErrorsOfListenersLikeNetHTTP(t *testing.T) {
	t.Parallel()
	for _, end := range []func(serves) error{serves.Close,
		func(s serves) error { return s.Shutdown(context.Background()) }} {
		onEach(t, http.NotFoundHandler(), func(t *testing.T, s serves) {
			addr := begin(t, s, func(l net.Listener) net.Listener { return failing{l} })
			raw(t, &fixture{addr: addr}, last, false)
			if err := end(s); !errors.Is(err, errFailing) {
				t.Errorf("got %v", err)
			}
			if err := end(s); err != nil {
				t.Errorf("again: %v", err)
			}
		})
	}
}

// Functions of RegisterOnShutdown are called whenever Shutdown is, also after Close and if nothing
// was ever served.
func TestOnShutdownLikeNetHTTP(t *testing.T) {
	for _, c := range []struct{ served, closed bool }{{}, {closed: true}, {served: true, closed: true}} {
		onEach(t, http.NotFoundHandler(), func(t *testing.T, s serves) {
			called := make(chan struct{}, 10)
			s.RegisterOnShutdown(func() { called <- struct{}{} })
			if c.served {
				raw(t, &fixture{addr: begin(t, s, asItIs)}, last, false)
			}
			if c.closed {
				s.Close()
				runtime.Gosched()
				select {
				case <-called:
					t.Error("called by Close")
				default:
				}
			}
			for i := range 2 {
				if err := s.Shutdown(context.Background()); err != nil {
					t.Error(err)
				}
				select {
				case <-called:
				case <-time.After(hangs):
					t.Errorf("Shutdown %d: not called", i)
				}
			}
		})
	}
}

// A first request that breaks off has been StateActive, as with net/http; a connection that has not
// begun one has not.
func TestStatesOfABrokenHead(t *testing.T) {
	for _, request := range []string{"", "G", "GET / HTTP/1.1\r\nHo"} {
		states := make(chan http.ConnState, 20)
		f := serve(t, &Server{ConnState: func(_ net.Conn, state http.ConnState) { states <- state }})
		c := dial(t, f)
		all := fmt.Sprint(<-states)
		io.WriteString(c, request)
		within(t, "the request is read", func() bool { return f.Engine.Stats().Reads > 0 || request == "" })
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
		for state := http.StateNew; state != http.StateClosed; all += fmt.Sprint(" ", state) {
			state = <-states
		}
		if want := map[bool]string{true: "new closed", false: "new active closed"}[request == ""]; all != want {
			t.Errorf("%q: %s", request, all)
		}
	}
}

// A flaky listener cannot accept for a while, again and again.
type flaky struct {
	net.Listener
	failures []int // before each connection
}

type temporary struct{ error }

func (temporary) Temporary() bool { return true }
func (temporary) Timeout() bool   { return false }

func (l *flaky) Accept() (net.Conn, error) {
	if len(l.failures) > 0 {
		if l.failures[0]--; l.failures[0] >= 0 {
			return nil, temporary{errors.New("no descriptors")}
		}
		l.failures = l.failures[1:]
	}
	return l.Listener.Accept()
}

// A listener that fails for a while is asked again after longer and longer pauses, as by net/http.
func TestAcceptPausesLikeNetHTTP(t *testing.T) {
	var logs []string
	onEach(t, http.NotFoundHandler(), func(t *testing.T, s serves) {
		said := new(lockedLog)
		switch s := s.(type) {
		case *http.Server:
			s.ErrorLog = log.New(said, "", 0)
		case *Server:
			s.ErrorLog = log.New(said, "", 0)
		}
		f := &fixture{addr: begin(t, s, func(l net.Listener) net.Listener { return &flaky{l, []int{3, 2, 0}} })}
		for range 3 {
			raw(t, f, last, false)
		}
		if logs = append(logs, said.String()); logs[len(logs)-1] != logs[0] {
			t.Errorf("net/http says %s, here %s", logs[0], said)
		}
	})
	if !strings.Contains(logs[0], "20ms") {
		t.Errorf("net/http says %s", logs[0])
	}
}

// A counted listener tells when it is asked to accept.
type counted struct {
	net.Listener
	asked chan struct{}
}

func (l counted) Accept() (net.Conn, error) {
	l.asked <- struct{}{}
	return l.Listener.Accept()
}

// Shutdown waits for a connection that was accepted, and that its loop has not come to yet: what
// its client has asked is answered.
func TestShutdownWaitsForUnopened(t *testing.T) {
	t.Parallel()
	s := &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })}
	prepare(t, s, myriad.Config{Loops: 1})
	asked := make(chan struct{}, 3)
	addr := begin(t, s, func(l net.Listener) net.Listener { return counted{l, asked} })
	<-asked
	held, free, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	s.state.lanes[0].Loop.Post(func() { close(held); <-free })
	<-held
	c := dial(t, &fixture{addr: addr})
	<-asked // the connection has been given to the loop
	io.WriteString(c, get+end)
	go func() { ended <- s.Shutdown(context.Background()) }()
	within(t, "Shutdown begins", s.closing.Load)
	select {
	case err := <-ended:
		t.Errorf("Shutdown: %v", err)
		ended <- err
	case <-time.After(20 * time.Millisecond): // it can only fail to find the fault
	}
	close(free)
	if got, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(got), "hello") {
		t.Errorf("got %q, %v", got, err)
	}
	c.Close() // or the server waits for that
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Shutdown of a server whose engine has ended waits for nothing.
func TestShutdownBehindItsEngine(t *testing.T) {
	f := serve(t, &Server{})
	if err := f.Engine.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := f.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}
