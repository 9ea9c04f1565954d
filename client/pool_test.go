package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
)

// A stallingListener keeps the first connections: they are connected and stay silent.
type stallingListener struct {
	net.Listener
	stalls atomic.Int32 // how many are still to stall
	mu     sync.Mutex
	silent []net.Conn // guarded by mu
}

func (l *stallingListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || l.stalls.Add(-1) < 0 {
			return c, err
		}
		l.mu.Lock()
		l.silent = append(l.silent, c)
		l.mu.Unlock()
	}
}

func (l *stallingListener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.silent {
		_ = c.Close()
	}
	return l.Listener.Close()
}

// serveStalling is an HTTPS server whose first connections are silent. It speaks HTTP/2.
func serveStalling(t *testing.T, stalls int, h http.HandlerFunc) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	l := &stallingListener{Listener: s.Listener}
	l.stalls.Store(int32(stalls))
	s.Listener, s.EnableHTTP2 = l, true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func ok(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }

// A handshake that hangs delays the requests of its host by little, and ends only its own.
func TestHungHandshakeHoldsUpNoOther(t *testing.T) {
	for _, limit := range []int{0, 2} {
		s := serveStalling(t, 1, ok)
		tr := fresh(t, &Transport{TLSClientConfig: trusting(s), ForceAttemptHTTP2: true, MaxConnsPerHost: limit})
		var wg sync.WaitGroup
		var failed atomic.Int32
		for range 4 {
			wg.Go(func() {
				for range 12 {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					r, err := tr.RoundTrip(request(t, "GET", s.URL, nil).WithContext(ctx))
					if err == nil {
						io.Copy(io.Discard, r.Body)
						r.Body.Close()
					} else {
						failed.Add(1)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		if n := failed.Load(); n > 0 {
			t.Errorf("MaxConnsPerHost %d: %d of 48 requests failed", limit, n)
		}
	}
}

// With a single place for connections, a dial that hangs keeps it for twice as long as its request
// has waited, and no longer.
func TestHungHandshakeGivesItsPlace(t *testing.T) {
	s := serveStalling(t, 1, ok)
	tr := fresh(t, &Transport{TLSClientConfig: trusting(s), ForceAttemptHTTP2: true, MaxConnsPerHost: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := tr.RoundTrip(request(t, "GET", s.URL, nil).WithContext(ctx)); err != context.DeadlineExceeded {
		t.Fatalf("the first request: %v", err)
	}
	if _, body := get(t, tr, s.URL); body != "HTTP/2.0" {
		t.Errorf("the second one: %q", body)
	}
}

// Requests that begin at the same time fail at about the same time: the dial of one does not wait
// for the end of another's.
func TestHandshakesTimeOutTogether(t *testing.T) {
	s := serveStalling(t, 1000, ok)
	const limit = 400 * time.Millisecond
	tr := fresh(t, &Transport{TLSClientConfig: trusting(s), ForceAttemptHTTP2: true, TLSHandshakeTimeout: limit})
	began := time.Now()
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			_, err := tr.RoundTrip(request(t, "GET", s.URL, nil))
			if e, ok := errors.AsType[net.Error](err); !ok || !e.Timeout() {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	if took := time.Since(began); took > 5*limit { // one after the other it would be ten times the limit
		t.Errorf("the last one failed after %v", took)
	}
}

// A dial goes on when its request has ended, for the next one: a handshake that takes longer than
// each request may wait is not begun for ever.
func TestDialOutlivesItsRequest(t *testing.T) {
	proceed := make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(ok))
	s.StartTLS()
	defer s.Close()
	var dials atomic.Int32
	dial := func(_ context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		<-proceed
		return net.Dial(network, addr)
	}
	tr := fresh(t, &Transport{TLSClientConfig: trusting(s), DialContext: dial})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := tr.RoundTrip(request(t, "GET", s.URL, nil).WithContext(ctx))
		failed <- err
	}()
	for dials.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-failed; err != context.Canceled {
		t.Errorf("the first request: %v", err)
	}
	close(proceed)
	for {
		tr.pool.mu.Lock()
		idle := tr.pool.idle
		tr.pool.mu.Unlock()
		if idle == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if get(t, tr, s.URL); dials.Load() != 1 {
		t.Errorf("%d dials for two requests", dials.Load())
	}
}

// A connection that drains takes no place of MaxConnsPerHost, in HTTP/2 behind GOAWAY and in HTTP/1
// behind "Connection: close". As many may drain as may be open.
func TestDrainingConnectionsTakeNoPlace(t *testing.T) {
	t.Run("HTTP/1", func(t *testing.T) {
		over := make(chan struct{})
		defer close(over)
		url := scripted(t, func(c net.Conn, r *bufio.Reader) {
			if _, err := readHead(r); err == nil {
				io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
				<-over // the server is slow to close
			}
		})
		tr := fresh(t, &Transport{MaxConnsPerHost: 1})
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), patience/4)
			if _, body := fetch(t, tr, request(t, "GET", url, nil).WithContext(ctx)); body != "ok" {
				t.Errorf("body %q", body)
			}
			cancel()
		}
	})
	t.Run("HTTP/2", func(t *testing.T) {
		var asked atomic.Int32
		s := framed(t, func(fr *http2.Framer, f http2.Frame) {
			switch id := f.Header().StreamID; {
			case f.Header().Type != http2.FrameHeaders:
			case asked.Add(1) == 1: // a response without end
				answer(fr, id, "200", false)
				fr.WriteGoAway(id, http2.ErrCodeNo, nil)
			default:
				answer(fr, id, "204", true)
			}
		})
		tr := overClearH2(t, &Transport{MaxConnsPerHost: 1})
		first, err := tr.RoundTrip(request(t, "GET", s+"/long", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer first.Body.Close()
		ctx, cancel := context.WithTimeout(t.Context(), patience/4)
		defer cancel()
		r, err := tr.RoundTrip(request(t, "GET", s+"/short", nil).WithContext(ctx))
		if err != nil {
			t.Fatalf("while the first response goes on: %v", err)
		}
		r.Body.Close()
	})
}

// While handshakes hang, one dial more is begun each time that hedgeAfter passes, however many
// requests wait.
func TestDialsAreSpreadWhileHandshakesHang(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var dials atomic.Int32
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			dials.Add(1)
			defer c.Close()
		}
	}()
	tr := fresh(t, &Transport{ForceAttemptHTTP2: true})
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	var calls sync.WaitGroup
	for range 200 {
		calls.Add(1)
		r := request(t, "GET", "https://"+ln.Addr().String(), nil).WithContext(ctx)
		tr.Do(r, func(*http.Response, error) { calls.Done() })
	}
	for dials.Load() < 4 {
		time.Sleep(time.Millisecond)
	}
	n := dials.Load()
	if most := int32(time.Since(began)/hedgeAfter) + 1; n > most {
		t.Errorf("%d dials after %v, at most %d are due", n, time.Since(began), most)
	}
	cancel()
	calls.Wait()
}

// A dial whose request is served by another connection does not count for the next request. That
// has a dial of its own as soon as there is a place.
func TestHungDialIsNotHandedOn(t *testing.T) {
	proceed, over := make(chan struct{}), make(chan struct{})
	defer close(over)
	url := scripted(t, func(c net.Conn, r *bufio.Reader) {
		for _, kind := range []string{"keep-alive", "close"} {
			if _, err := readHead(r); err != nil {
				return
			}
			if kind == "keep-alive" {
				<-proceed
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: "+kind+"\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	var dials atomic.Int32
	tr := fresh(t, &Transport{MaxConnsPerHost: 2})
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) == 2 {
			<-over
			return nil, net.ErrClosed
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	results := make(chan error)
	for _, p := range []Phase{Sent, Dialing, Queued} { // where each request stays
		tr.Do(request(t, "GET", url, nil).WithContext(ctx), func(r *http.Response, err error) {
			if err == nil {
				err = OnBody(r, func([]byte, error) {})
			}
			results <- err
		})
		for tr.figures.calls[p].Load() != 1 {
			time.Sleep(time.Millisecond)
		}
	}
	close(proceed)
	for range 3 {
		if err := <-results; err != nil {
			t.Errorf("after %d dials: %v", dials.Load(), err)
		}
	}
}

// A calmHost is a server in a calm world whose connections do as each test says.
type calmHost struct {
	*sim.World
	t        *testing.T
	tr       *Transport
	ln       *sim.Listener
	accepted []time.Duration // when each connection was, since the world began, to the millisecond
	dead     int             // so many of the first connections do not answer any more
	settings []http2.Setting // of HTTP/2
}

// newCalmHost accepts connections for as long as the test lasts.
func newCalmHost(t *testing.T, tr *Transport, accept func(h *calmHost, p *sim.Peer)) *calmHost {
	h := &calmHost{World: sim.New(1, sim.Calm()), t: t, tr: tr}
	e, err := myriad.Start(myriad.Config{Loops: 1, System: h.World, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	tr.Engine = e
	var peers []*sim.Peer
	ln, err := h.ListenPeer("tcp", "127.0.0.1:0", func(p *sim.Peer) {
		h.accepted = append(h.accepted, h.Now().Sub(sim.Epoch).Round(time.Millisecond))
		peers = append(peers, p)
		p.OnEnded = p.Close
		accept(h, p)
	})
	if err != nil {
		t.Fatal(err)
	}
	h.ln = ln
	t.Cleanup(func() {
		for _, p := range peers {
			p.Close()
		}
		h.Run()
		tr.CloseIdleConnections()
		if err := e.Shutdown(context.Background()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		h.Run()
		h.Check(t)
		for _, left := range Leftovers(tr) {
			t.Error(left)
		}
	})
	return h
}

// staysSilent is for a server that says nothing.
func staysSilent(*calmHost, *sim.Peer) {}

// answersHTTP1 is for a server of HTTP/1 that answers each request 20 ms later.
func answersHTTP1(h *calmHost, p *sim.Peer) {
	p.OnReceived = func([]byte) { // in a calm world a request comes whole
		h.AfterFunc(20*time.Millisecond, func() { p.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n")) })
	}
}

// ask sends a request that its caller gives up after d. The result comes at *err.
func (h *calmHost) ask(scheme string, d time.Duration) *error {
	result := errors.New("no result")
	call := h.tr.Do(request(h.t, "GET", scheme+"://"+h.ln.Addr().String(), nil), func(r *http.Response, err error) {
		if result = err; err == nil {
			r.Body.Close()
		}
	})
	h.AfterFunc(d, call.Cancel)
	return &result
}

// A dial hangs, and its request is given up after a long time. If another request needs the place,
// the dial keeps it for spareHold.
func TestHungDialOfPatientRequestGivesItsPlace(t *testing.T) {
	h := newCalmHost(t, &Transport{MaxConnsPerHost: 1}, staysSilent)
	h.ask("https", 8*time.Second)
	h.RunFor(8 * time.Second)
	h.ask("https", 8*time.Second)
	h.RunFor(8 * time.Second)
	if want := []time.Duration{0, 8*time.Second + spareHold}; !slices.Equal(h.accepted, want) {
		t.Errorf("connections were dialled after %v, want %v", h.accepted, want)
	}
}

// A dial whose request was served by another connection goes on, although others need its place.
// Else a server that is slow to connect and quick to answer would never have a second connection.
func TestSlowDialOfServedRequestGoesOn(t *testing.T) {
	h := newCalmHost(t, &Transport{MaxConnsPerHost: 2}, answersHTTP1)
	h.ask("http", time.Second)
	h.RunFor(5 * time.Millisecond)
	h.ln.Silence(true) // each SYN is lost, and sent again a second later
	for range 100 {
		h.ask("http", 10*time.Second)
	}
	h.RunFor(900 * time.Millisecond)
	h.ln.Silence(false)
	h.RunFor(5 * time.Second)
	if want := []time.Duration{0, 1005 * time.Millisecond}; !slices.Equal(h.accepted, want) {
		t.Errorf("connections were made after %v, want %v", h.accepted, want)
	}
}

// HTTP/2 connections whose servers stay silent cost each further request no more than one wait of
// hedgeAfter, however many there are.
func TestSilentConnectionsDelayARequestOnce(t *testing.T) {
	tr := &Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	h := newCalmHost(t, tr, staysSilent)
	want := []time.Duration{0}
	for i := range 8 {
		h.ask("http", 10*time.Second)
		if h.RunFor(500 * time.Millisecond); i > 0 {
			want = append(want, time.Duration(i)*500*time.Millisecond+hedgeAfter)
		}
	}
	if !slices.Equal(h.accepted, want) {
		t.Errorf("connections were dialled after %v, want %v", h.accepted, want)
	}
}

// A laterSystem is a system whose wall clock goes on by a while, in which its timers stand still.
type laterSystem struct {
	driver.System
	by atomic.Int64
}

func (s *laterSystem) Now() time.Time {
	if by := time.Duration(s.by.Load()); by > 0 {
		return s.System.Now().Round(0).Add(by)
	}
	return s.System.Now()
}

// A connection that has been idle for longer than IdleConnTimeout is not used, although the system
// has slept meanwhile, and its timers with it: its server has closed it long ago.
func TestStaleConnectionsAreNotUsed(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		for _, limit := range []int{0, 1} {
			w := sim.New(1, sim.Options{})
			e, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			s := &web.Server{Engine: e, Protocols: new(http.Protocols), Handler: http.HandlerFunc(
				func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, r.RemoteAddr) })}
			s.Protocols.SetHTTP1(!h2)
			s.Protocols.SetUnencryptedHTTP2(h2)
			ln, err := s.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			tr := &Transport{Engine: e, IdleConnTimeout: time.Hour, MaxConnsPerHost: limit, Protocols: s.Protocols}
			if err := tr.init(); err != nil {
				t.Fatal(err)
			}
			later := &laterSystem{System: tr.sys}
			tr.sys = later
			conns := map[string]bool{}
			for i, passed := range []time.Duration{0, 0, 59 * time.Minute, 3 * time.Hour} {
				later.by.Store(int64(passed))
				w.Go(func() {
					_, from := get(t, tr, "http://"+ln.Addr().String())
					conns[from] = true
				})
				w.Settle()
				if want := 1 + i/3; len(conns) != want {
					t.Errorf("HTTP/2 %v, MaxConnsPerHost %d: %d connections %v later, want %d", h2, limit, len(conns),
						passed, want)
				}
			}
			tr.CloseIdleConnections()
			_ = s.Close()
			_ = s.Shutdown(context.Background())
			_ = e.Shutdown(context.Background())
			w.Run()
			w.Check(t)
			for _, left := range Leftovers(tr) {
				t.Error(left)
			}
		}
	}

}
