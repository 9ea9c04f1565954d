package web

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web/internal/http1"
)

var dispatches = []Dispatch{DispatchPool, DispatchInline, DispatchAuto}

// Shutdown waits for a handler although its client has gone, as net/http does.
func TestShutdownWaitsForHandlers(t *testing.T) {
	for _, d := range dispatches {
		t.Run(d.String(), func(t *testing.T) {
			begun, inside, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
			var over atomic.Bool
			f := serveOn(t, &Server{Dispatch: d,
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					close(begun)
					<-r.Context().Done() // its client goes
					close(inside)
					<-release
					over.Store(true)
				})}, myriad.Config{Loops: 1})
			c := dial(t, f)
			io.WriteString(c, get+"\r\n")
			c.(*net.TCPConn).SetLinger(0)
			<-begun
			c.Close()
			<-inside
			ended := make(chan error, 1)
			go func() { ended <- f.Shutdown(context.Background()) }()
			for !f.closing.Load() {
				time.Sleep(time.Millisecond)
			}
			select {
			case err := <-ended:
				t.Errorf("Shutdown did not wait for the handler: %v", err)
			case <-time.After(20 * time.Millisecond): // it can only fail to find the fault
			}
			close(release)
			if err := <-ended; err != nil || !over.Load() {
				t.Errorf("Shutdown: %v, handler over: %v", err, over.Load())
			}
		})
	}
}

// A lateListener takes its time to end.
type lateListener struct {
	net.Listener
	accepting chan struct{}
	release   chan struct{}
}

func (l *lateListener) Accept() (net.Conn, error) {
	close(l.accepting)
	<-l.release
	return nil, net.ErrClosed
}

func (*lateListener) Close() error   { return nil }
func (*lateListener) Addr() net.Addr { return &net.TCPAddr{} }

// Shutdown waits for Serve, too, as net/http does: its caller may rely on it that nothing more is
// accepted.
func TestShutdownWaitsForServe(t *testing.T) {
	f := prepare(t, &Server{}, myriad.Config{Loops: 1})
	l := &lateListener{accepting: make(chan struct{}), release: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- f.Serve(l) }()
	<-l.accepting
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := f.Shutdown(soon); err != context.DeadlineExceeded {
		t.Errorf("Shutdown while Serve accepts: %v", err)
	}
	close(l.release)
	if err := f.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-served; err != http.ErrServerClosed {
		t.Errorf("Serve: %v", err)
	}
}

// A lastListener has one connection, and gives it away when it has been closed.
type lastListener struct {
	lateListener
	nc net.Conn
}

func (l *lastListener) Accept() (net.Conn, error) {
	nc := l.nc
	if l.nc = nil; nc == nil {
		return nil, net.ErrClosed
	}
	close(l.accepting)
	<-l.release
	return nc, nil
}

// Shutdown waits for a connection that comes to a loop which has already been told of the end, and
// is not opened yet.
func TestShutdownFindsWhatComesLate(t *testing.T) {
	t.Parallel()
	f := prepare(t, &Server{Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "in time")
		})}, myriad.Config{Loops: 1})
	client, nc := tcpPair(t)
	io.WriteString(client, get+end)
	l := &lastListener{lateListener{accepting: make(chan struct{}), release: make(chan struct{})}, nc}
	served := make(chan error, 1)
	go func() { served <- f.Serve(l) }()
	<-l.accepting
	ended := make(chan error, 1)
	go func() { ended <- f.Shutdown(t.Context()) }()
	ln := f.state.lanes[0]
	within(t, "the loop knows of the end", func() bool {
		knows := make(chan bool)
		ln.Loop.Post(func() { knows <- ln.Drained })
		return <-knows
	})
	held, free := make(chan struct{}), make(chan struct{})
	ln.Loop.Post(func() { close(held); <-free })
	<-held
	close(l.release)
	if err := <-served; err != http.ErrServerClosed {
		t.Errorf("Serve: %v", err)
	}
	select {
	case err := <-ended:
		t.Errorf("Shutdown does not wait for the connection: %v", err)
		ended <- err
	case <-time.After(20 * time.Millisecond): // it can only fail to find the fault
	}
	close(free)
	if answer, err := io.ReadAll(client); err != nil || !strings.HasSuffix(string(answer), "in time") {
		t.Errorf("got %q, %v", answer, err)
	}
	client.Close() // or the server waits for that
	if err := <-ended; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// tcpPair is both ends of a connection, the first until the test ends.
func tcpPair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	client.SetDeadline(time.Now().Add(hangs))
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	return client, server
}

// Shutdown does not wait for handlers that have hijacked their connections, which live on, as with
// net/http.
func TestShutdownLeavesHijacked(t *testing.T) {
	for _, d := range dispatches {
		t.Run(d.String(), func(t *testing.T) {
			hijacked := make(chan struct{})
			f := serveOn(t, &Server{Dispatch: d,
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					nc, rw, err := http.NewResponseController(w).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					defer nc.Close()
					close(hijacked)
					line, _ := rw.ReadString('\n')
					io.WriteString(nc, strings.ToUpper(line))
				})}, myriad.Config{Loops: 1})
			c := dial(t, f)
			io.WriteString(c, get+"\r\n")
			<-hijacked
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			if err := f.Shutdown(ctx); err != nil {
				t.Fatal(err)
			}
			io.WriteString(c, "hello\n")
			if got, err := io.ReadAll(c); err != nil || string(got) != "HELLO\n" {
				t.Errorf("after Shutdown: %q, %v", got, err)
			}
		})
	}
}

// Shutdown under load cuts nothing off: every handler that has begun is answered to its last byte,
// also behind others in a pipeline, with a body and without, in the clear and with TLS.
func TestShutdownUnderLoad(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		for _, d := range dispatches {
			for _, depth := range []int{1, 8} {
				t.Run(fmt.Sprintf("%v/TLS %v/depth %d", d, secure, depth),
					func(t *testing.T) { shutdownUnderLoad(t, d, secure, depth) })
			}
		}
	}
}

func shutdownUnderLoad(t *testing.T, d Dispatch, secure bool, depth int) {
	const clients = 24
	var begun, answered, rounds atomic.Int64
	large := strings.Repeat("l", 100<<10)
	s := &Server{Dispatch: d, PipelineDepth: depth,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := begun.Add(1)
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Errorf("a request that was being read was cut off: %v", err)
			}
			if n%50 == 0 {
				time.Sleep(2 * time.Millisecond)
			}
			fmt.Fprint(w, len(body), " ")
			if n%20 == 0 {
				io.WriteString(w, large)
			}
		})}
	serveAny := serve
	if secure {
		serveAny = func(t testing.TB, s *Server) *fixture { return serveTLS(t, s) }
	}
	f := serveAny(t, s)
	requests := strings.Repeat(get+"\r\n", 3) + post + "Content-Length: 5000\r\n\r\n" + strings.Repeat("x", 5000) +
		get + "\r\n"
	var wg sync.WaitGroup
	for range clients {
		c := dial(t, f)
		if secure {
			c = tls.Client(c, trusting())
		}
		wg.Go(func() {
			defer c.Close()
			for r := bufio.NewReader(c); ; rounds.Add(1) {
				go io.WriteString(c, requests) // it may be refused while the server ends
				for range 5 {
					if !readWhole(t, r) {
						return
					}
					answered.Add(1)
				}
			}
		})
	}
	within(t, "everybody has been answered twice", func() bool { return rounds.Load() >= 2*clients })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := f.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if begun.Load() != answered.Load() {
		t.Errorf("%d handlers have run, %d answers have come", begun.Load(), answered.Load())
	}
}

// readWhole reads an answer. It reports false at an end between answers.
func readWhole(t *testing.T, r *bufio.Reader) bool {
	if _, err := r.Peek(1); err != nil {
		return false
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Errorf("in the head of an answer: %v", err)
		return false
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
		t.Errorf("%s: cut off after %d bytes: %v", resp.Status, n, err)
		return false
	}
	return true
}

// A Shutdown that gives up leaves nothing behind.
func TestShutdownThatGivesUp(t *testing.T) {
	inside, release := make(chan struct{}), make(chan struct{})
	f := serve(t, &Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(inside)
		<-release
	})})
	io.WriteString(dial(t, f), get+"\r\n")
	<-inside
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		if err := f.Shutdown(over); err != context.Canceled {
			t.Errorf("Shutdown: %v", err)
		}
	}
	f.state.Mu.Lock()
	left := len(f.state.Waiters)
	f.state.Mu.Unlock()
	if left != 0 {
		t.Errorf("%d are still to be told", left)
	}
	close(release)
}

// Shutdown is bounded by its context, and Close returns at once, while a callback blocks a loop
// whose mailbox is full. When the callback returns, what they have asked for is done.
func TestShutdownBesideABlockedLoop(t *testing.T) {
	e, err := myriad.Start(myriad.Config{Loops: 1, Mailbox: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Engine: e, Handler: http.NotFoundHandler()}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	in := bufio.NewReader(nc)
	io.WriteString(nc, get+end)
	if _, err := http.ReadResponse(in, nil); err != nil {
		t.Fatal(err)
	}
	blocked, free := make(chan bool), make(chan bool)
	l := e.Loops()[0]
	if err := l.Do(func() { blocked <- true; <-free }); err != nil {
		t.Fatal(err)
	}
	<-blocked
	for l.Do(func() {}) == nil {
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); err != context.Canceled {
		t.Errorf("Shutdown: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	s.SetKeepAlivesEnabled(false)
	close(free)
	_, _ = io.Copy(io.Discard, in) // it ends: in order by Shutdown, or reset by Close
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown when nothing blocks: %v", err)
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

var _ myriad.Stopper = (*http1.Conn)(nil)
