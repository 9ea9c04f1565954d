package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// A sleeping fixture has a server of which one connection for each loop stays awake, and clients
// that have asked it once.
type sleeping struct {
	*fixture
	conns   []net.Conn
	readers []*bufio.Reader
}

// connected is a sleeping fixture whose clients have not asked yet.
func connected(t *testing.T, n int, s *Server) *sleeping {
	t.Helper()
	many := &sleeping{fixture: serveOn(t, s, myriad.Config{Loops: 1})}
	for range n {
		c := dial(t, many.fixture)
		many.conns = append(many.conns, c)
		many.readers = append(many.readers, bufio.NewReader(c))
	}
	return many
}

func manySleepers(t *testing.T, n int, s *Server) *sleeping {
	t.Helper()
	many := connected(t, n, s)
	for i := range many.conns {
		many.get(t, i, "/")
	}
	return many
}

// get asks by one of the connections, and returns the body of the answer.
func (m *sleeping) get(t *testing.T, i int, path string) string {
	t.Helper()
	return m.ask(t, i, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n")
}

func (m *sleeping) ask(t *testing.T, i int, request string) string {
	t.Helper()
	io.WriteString(m.conns[i], request)
	resp, err := http.ReadResponse(m.readers[i], nil)
	return mustBody(t, resp, err)
}

func (m *sleeping) hibernating() int { return m.Engine.Stats().Hibernating }

func whoAsks(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprint(w, r.RemoteAddr, r.URL.Path, string(body))
}

// Connections that wait hibernate but for one, and each is served again as itself: bodies,
// pipelines and heads in pieces, too.
func TestHibernation(t *testing.T) {
	t.Parallel()
	for _, d := range []Dispatch{DispatchAuto, DispatchPool, DispatchInline} {
		t.Run(d.String(), func(t *testing.T) {
			const n = 20
			m := manySleepers(t, n, &Server{Handler: http.HandlerFunc(whoAsks), Dispatch: d})
			within(t, "all but one hibernate", func() bool { return m.hibernating() == n-1 })
			awake := make(chan int)
			m.state.lanes[0].Loop.Post(func() { awake <- len(m.state.lanes[0].Awake) })
			if got := <-awake; got != 1 {
				t.Errorf("the lane has %d conns", got)
			}
			for round := range 3 {
				for i, c := range m.conns {
					me := c.LocalAddr().String()
					if got := m.get(t, i, "/get"); got != me+"/get" {
						t.Fatalf("round %d: %q, want %s/get", round, got, me)
					}
					const post = "POST /post HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"
					if got := m.ask(t, i, post); got != me+"/postbody" {
						t.Fatalf("round %d: %q, want %s/postbody", round, got, me)
					}
					io.WriteString(c, "GET /two HTTP/1.1\r\nHost: h\r\n\r\nGET /pie")
					resp, err := http.ReadResponse(m.readers[i], nil)
					if got := mustBody(t, resp, err); got != me+"/two" {
						t.Fatalf("round %d: %q, want %s/two", round, got, me)
					}
					m.get(t, (i+1)%n, "/other")
					if got := m.ask(t, i, "ces HTTP/1.1\r\nHost: h\r\n\r\n"); got != me+"/pieces" {
						t.Fatalf("round %d: %q, want %s/pieces", round, got, me)
					}
				}
			}
			ended := make(chan error, 1)
			go func() { ended <- m.Shutdown(context.Background()) }()
			for i, r := range m.readers {
				if _, err := r.ReadByte(); err != io.EOF {
					t.Errorf("after Shutdown: %v", err)
				}
				m.conns[i].Close() // or the server waits for that
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// hibernatingNewcomers have connected, and all but one hibernate before they ask anything. They are
// more than a loop keeps Conns for.
func hibernatingNewcomers(t *testing.T, s *Server) *sleeping {
	t.Helper()
	m := connected(t, 300, s)
	within(t, "all but one hibernate", func() bool { return m.hibernating() == len(m.conns)-1 })
	return m
}

// Connections that have not asked yet hibernate as well, and are served as those that have just
// come.
func TestNewcomersHibernate(t *testing.T) {
	t.Parallel()
	t.Run("ask", func(t *testing.T) {
		t.Parallel()
		m := hibernatingNewcomers(t, &Server{Handler: http.HandlerFunc(whoAsks)})
		m.SetKeepAlivesEnabled(false) // ends those that have asked before, and only those
		for i, c := range m.conns {
			if got, want := m.get(t, i, "/"), c.LocalAddr().String()+"/"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	})
	t.Run("leave", func(t *testing.T) {
		t.Parallel()
		m := hibernatingNewcomers(t, &Server{Handler: http.HandlerFunc(whoAsks)})
		for _, c := range m.conns {
			c.Close()
		}
		within(t, "the server counts none", func() bool { return m.state.Conns.Load() == 0 })
	})
	t.Run("are late", func(t *testing.T) {
		t.Parallel()
		m := connected(t, 300, &Server{ReadHeaderTimeout: 50 * time.Millisecond, Handler: http.HandlerFunc(whoAsks)})
		m.allEnd(t) // most of them hibernate until then
	})
	t.Run("Close", func(t *testing.T) {
		t.Parallel()
		m := hibernatingNewcomers(t, &Server{Handler: http.HandlerFunc(whoAsks)})
		m.Close()
		m.allEnd(t)
	})
}

// Shutdown gives them the time in which a request may still come, and ends them.
func TestShutdownOfHibernatingNewcomers(t *testing.T) {
	const clients = 300
	s := &Server{Handler: http.HandlerFunc(whoAsks), mostAwake: 1}
	w, first := slow(t, s)
	peers := []*sim.Peer{first}
	for len(peers) < clients {
		peers = append(peers, w.Dial(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}))
	}
	// Those that find the backlog full dial again after a second.
	if w.RunFor(5 * time.Second); s.Engine.Stats().Hibernating != clients-1 {
		t.Fatalf("%d connections hibernate", s.Engine.Stats().Hibernating)
	}
	began := w.Now()
	if err := s.Shutdown(atLength(t)); err != nil {
		t.Error(err)
	}
	if took := w.Now().Sub(began); took < exchange.NewConnGrace-time.Second ||
		took > exchange.NewConnGrace+time.Second {
		t.Errorf("Shutdown took %v", took)
	}
	w.RunFor(time.Second)
	for i, p := range peers {
		if !p.Ended() || p.Count() > 0 {
			t.Fatalf("connection %d has ended: %v, with %q", i, p.Ended(), p.Received())
		}
	}
}

// allEnd reads the end of every connection, before which nothing comes.
func (m *sleeping) allEnd(t *testing.T) {
	t.Helper()
	for i, r := range m.readers {
		if b, err := r.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d: %q, %v", i, b, err)
		}
	}
}

// within is for what a loop brings about soon.
func within(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(hangs); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited too long until %s", what)
		}
	}
}

// What Serve gets from a listener of package net hibernates, too.
func TestHibernationOfServed(t *testing.T) {
	f := prepare(t, &Server{Handler: http.HandlerFunc(whoAsks)}, myriad.Config{Loops: 1})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- f.Serve(l) }()
	const n = 80 // more than a loop tells kinds apart
	for range n {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		mustBody(t, resp, err)
	}
	within(t, "all but one hibernate", func() bool { return f.Engine.Stats().Hibernating == n-1 })
	f.Close()
	<-served
}

// What a handler keeps of a request stays that request's, whichever client its conn serves later.
func TestHibernationLeavesRequestsAlone(t *testing.T) {
	var mu sync.Mutex
	kept := map[string]*http.Request{}
	var streams []*Stream
	m := manySleepers(t, 10, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == "/stream" {
			s, err := Detached(w)
			if err != nil {
				t.Error(err)
			}
			s.Close()
			streams = append(streams, s)
			return
		}
		kept[r.RemoteAddr] = r
	})})
	for i := range m.conns {
		m.get(t, i, "/stream")
	}
	for i := range m.conns {
		m.get(t, i, fmt.Sprint("/kept/", i))
	}
	for _, s := range streams { // nothing of this is for the clients that are served now
		s.SetWriteLimit(1)
		s.Abort(errors.New("late"))
		if _, err := s.Write([]byte("late")); err == nil {
			t.Error("a stream takes bytes after its end")
		}
	}
	for i, c := range m.conns {
		m.get(t, i, "/again")
		mu.Lock()
		kept[c.LocalAddr().String()+"*"] = kept[c.LocalAddr().String()]
		mu.Unlock()
		m.get(t, (i+1)%len(m.conns), "/other")
		r := kept[c.LocalAddr().String()+"*"]
		if local := r.Context().Value(http.LocalAddrContextKey); r.URL.Path != "/again" ||
			r.Context().Err() != context.Canceled ||
			fmt.Sprint(local) != m.addr || r.Context().Value(http.ServerContextKey) == nil {
			t.Errorf("%s: path %s, %v, local address %v", c.LocalAddr(), r.URL.Path, r.Context().Err(), local)
		}
	}
	within(t, "all hibernate, as those do whose limit has not been changed",
		func() bool { return m.hibernating() == len(m.conns)-1 })
}

// A conn that has hibernated as the last that asked is another client's when it wakes.
func TestHibernationForgetsAddress(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	m := manySleepers(t, 3, &Server{Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				began <- struct{}{}
				<-release
			}
			whoAsks(w, r)
		})})
	within(t, "the first hibernates", func() bool { return m.hibernating() > 0 })
	for range 10 {
		io.WriteString(m.conns[1], "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
		<-began
		m.get(t, 2, "/quick")
		release <- struct{}{}
		resp, err := http.ReadResponse(m.readers[1], nil)
		mustBody(t, resp, err) // and 2 hibernates, whose request was the last
		if got, want := m.get(t, 0, "/"), m.conns[0].LocalAddr().String()+"/"; got != want {
			t.Fatalf("%s is served as %s", want, got)
		}
	}
}

// A connection whose client was late in taking an answer may wait as long as others once it has.
func TestHibernationAfterLateAnswer(t *testing.T) {
	limit := 100 * time.Millisecond
	for !waitsAfterLateAnswer(t, limit) {
		limit *= 2 // it has not come in time
	}
}

// waitsAfterLateAnswer reports whether an answer has come that had so much time.
func waitsAfterLateAnswer(t *testing.T, limit time.Duration) bool {
	large := strings.Repeat("x", 8<<20)
	m := manySleepers(t, 3, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit))
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(large))
		}
	})})
	io.WriteString(m.conns[0], "GET /large HTTP/1.1\r\nHost: h\r\n\r\n")
	resp, err := http.ReadResponse(m.readers[0], nil)
	if err != nil {
		return false
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return false
	}
	for i := range 30 {
		m.get(t, 1+i%2, "/")
	}
	m.conns[0].SetReadDeadline(time.Now().Add(limit + limit/2))
	if _, err := m.readers[0].ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the idle connection: %v", err)
	}
	return true
}

// Callers that see the net.Conns of connections find them unchanged.
func TestHibernationNeedsNobodyElse(t *testing.T) {
	var mu sync.Mutex
	conns := map[net.Conn]bool{}
	see := func(c net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		conns[c] = true
	}
	for name, s := range map[string]*Server{
		"ConnState": {ConnState: func(c net.Conn, _ http.ConnState) { see(c) }},
		"ConnContext": {ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			see(c)
			return context.WithValue(ctx, http.LocalAddrContextKey, c)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			clear(conns)
			s.Handler = http.HandlerFunc(whoAsks)
			m := manySleepers(t, 10, s)
			for i := range m.conns {
				m.get(t, i, "/")
			}
			mu.Lock()
			defer mu.Unlock()
			if len(conns) != 10 || m.hibernating() != 0 {
				t.Errorf("%d net.Conns of 10 connections, %d hibernate", len(conns), m.hibernating())
			}
		})
	}
}

// Connections that hibernate end as others do.
func TestHibernationEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(m *sleeping){
		"IdleTimeout": func(*sleeping) {},
		"keep-alives": func(m *sleeping) { m.SetKeepAlivesEnabled(false) },
		"Close":       func(m *sleeping) { m.Close() },
		"engine":      func(m *sleeping) { go m.Engine.Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			s := &Server{Handler: http.HandlerFunc(whoAsks)}
			if name == "IdleTimeout" {
				// the latter for clients that have not asked yet
				s.IdleTimeout, s.ReadHeaderTimeout = 300*time.Millisecond, time.Minute
			}
			m := manySleepers(t, 10, s)
			for i := 1; i < len(m.conns) && name != "IdleTimeout"; i += 2 {
				m.ask(t, i, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody")
			}
			if end(m); name != "IdleTimeout" && m.hibernating() > 0 {
				within(t, "none hibernates", func() bool { return m.hibernating() == 0 })
			}
			for i, r := range m.readers {
				if _, err := r.ReadByte(); err == nil || strings.Contains(err.Error(), "timeout") {
					t.Errorf("the client reads %v", err)
				}
				m.conns[i].Close() // or the server waits for that
			}
			within(t, "the server counts none", func() bool { return m.state.Conns.Load() == 0 })
		})
	}
}

// A handler that panics after an upgrade ends its connection: the next protocol is told, and other
// connections do not notice.
func TestUpgradeThenPanic(t *testing.T) {
	t.Parallel()
	for _, others := range []int{1, 4} {
		next := &told{opened: make(chan struct{}, 1), closed: make(chan error, 1)}
		m := manySleepers(t, others+1, &Server{Dispatch: DispatchInline,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/up" {
					whoAsks(w, r)
					return
				}
				if err := Upgrade(w, []byte("HTTP/1.1 101 Switching Protocols\r\n\r\n"), next); err != nil {
					t.Error(err)
				}
				panic(http.ErrAbortHandler)
			})})
		io.WriteString(m.conns[others], "GET /up HTTP/1.1\r\nHost: h\r\n\r\n")
		if _, err := io.Copy(io.Discard, m.readers[others]); err != nil {
			t.Error(err)
		}
		m.conns[others].Close()
		select {
		case <-next.closed:
		case <-time.After(hangs):
			t.Fatal("the next protocol does not hear of the end")
		}
		if len(next.opened) != 1 {
			t.Error("Closed without Opened")
		}
		for i := range others {
			m.get(t, i, "/")
		}
		within(t, "the server counts the others", func() bool { return m.state.Conns.Load() == int64(others) })
		for _, c := range m.conns {
			c.Close() // or the server waits for that
		}
		if err := m.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// told is a handler that records its callbacks.
type told struct {
	opened chan struct{}
	closed chan error
}

func (h *told) Opened(*myriad.Conn)              { h.opened <- struct{}{} }
func (*told) Received(*myriad.Conn, []byte)      {}
func (h *told) Closed(_ *myriad.Conn, err error) { h.closed <- err }

// A client that sends empty lines and its end gets the same answer, or none, whether its connection
// can hibernate or not: what has come of them counts, and what it has asked before, and nothing
// that others have asked.
func TestHibernationKeepsEmptyLines(t *testing.T) {
	const posted = post + "Content-Length: 3\r\n\r\nabc"
	for _, before := range []string{"", get + end, posted} {
		for _, lines := range []string{"", "\r\n", "\r\n\r\n", "\r\n\r\n\r\n"} {
			for _, apart := range []bool{false, true} {
				for _, other := range []string{"", get + end, posted} {
					wakes, want := emptyLines(t, before, lines, other, apart, 1),
						emptyLines(t, before, lines, other, apart, mostAwake)
					if wakes != want {
						t.Errorf("%.4q, %q, apart %v, beside %.4q: got %s, if awake %s", before, lines, apart, other,
							wakes, want)
					}
				}
			}
		}
	}
}

// emptyLines returns the statuses that a client gets that asks and sends empty lines and its end,
// with what it has asked or apart. Another one asks before it ends.
func emptyLines(t *testing.T, before, lines, other string, apart bool, awake int) string {
	w, first := slow(t, &Server{Dispatch: DispatchInline, mostAwake: awake, Handler: http.NotFoundHandler()})
	addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}
	first.Write([]byte(get + end)) // and is the one that stays awake
	w.RunFor(time.Second)
	client, beside := w.Dial(addr), w.Dial(addr)
	w.RunFor(time.Second)
	if apart {
		client.Write([]byte(before))
		w.RunFor(time.Second)
		beside.Write([]byte(other))
		w.RunFor(time.Second)
		client.Write([]byte(lines))
	} else {
		client.Write([]byte(before + lines))
		w.RunFor(time.Second)
		beside.Write([]byte(other))
		w.RunFor(time.Second)
	}
	client.CloseWrite()
	w.RunFor(time.Second)
	return fmt.Sprint(statuses(string(client.Received())), client.Ended())
}
