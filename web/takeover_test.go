package web

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web/internal/exchange"
	"github.com/myriad-go/myriad/web/internal/http1"
)

// shout speaks after an upgrade: it answers in capitals.
type shout struct {
	opened chan struct{}
	closed chan error
}

func (s *shout) Opened(*myriad.Conn)               { close(s.opened) }
func (s *shout) Received(c *myriad.Conn, p []byte) { c.Write([]byte(strings.ToUpper(string(p)))) }
func (s *shout) Closed(_ *myriad.Conn, err error)  { s.closed <- err }

// wrapped is a ResponseWriter as frameworks have them.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

const switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: shout\r\nConnection: Upgrade\r\n\r\n"

func TestUpgrade(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		s := &shout{make(chan struct{}), make(chan error, 1)}
		f := serve(t, &Server{Dispatch: d, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := Upgrade(wrapped{w}, []byte(switching), s); err != nil {
				t.Error(err)
			}
			if _, err := io.WriteString(w, "no"); !errors.Is(err, http.ErrHijacked) {
				t.Errorf("Write after Upgrade: %v", err)
			}
			if err := Upgrade(w, nil, s); !errors.Is(err, http.ErrHijacked) {
				t.Errorf("second Upgrade: %v", err)
			}
		})})
		c := dial(t, f)
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: shout\r\nConnection: Upgrade\r\n\r\nread ahead ")
		receive(t, s.opened)
		io.WriteString(c, "and more")
		want := switching + "READ AHEAD AND MORE"
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v", got, err)
		}
		c.Close()
		if err := receive(t, s.closed); err != nil {
			t.Error(err)
		}
	})
}

// A protocol after an upgrade is told of a FIN that came before it; else the connection would never
// end.
func TestUpgradeBehindTheEnd(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		s := &shout{make(chan struct{}), make(chan error, 1)}
		f := serve(t, &Server{Dispatch: d, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			if err := Upgrade(w, []byte(switching), s); err != nil {
				t.Error(err)
			}
		})})
		if got, want := raw(t, f, get+"Upgrade: shout\r\nConnection: Upgrade\r\n\r\nread ahead", true),
			switching+"READ AHEAD"; got != want {
			t.Errorf("got %q", got)
		}
		if err := receive(t, s.closed); err != nil {
			t.Error(err)
		}
	})
}

func TestUpgradeIsRefused(t *testing.T) {
	if err := Upgrade(httptest.NewRecorder(), nil, nil); !errors.Is(err, ErrNotMyriad) ||
		!strings.Contains(err.Error(), "ResponseRecorder") {
		t.Errorf("foreign writer: %v", err)
	}
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begun" {
			w.WriteHeader(200)
		}
		fmt.Fprint(w, Upgrade(w, []byte(switching), nil))
	})})
	c := client(t)
	r, err := c.Get(f.url("/begun"))
	if got := mustBody(t, r, err); !strings.Contains(got, "has begun") {
		t.Error(got)
	}
	answer := raw(t, f, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\nConnection: close\r\n\r\nx", true)
	if !strings.Contains(answer, "whose body") {
		t.Error(answer)
	}
}

func TestHijack(t *testing.T) {
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nc, rw, err := http.NewResponseController(wrapped{w}).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer nc.Close()
		if n := rw.Reader.Buffered(); n != len("ahead\n") {
			t.Errorf("%d bytes read ahead", n)
		}
		for range 2 {
			line, err := rw.ReadString('\n')
			fmt.Fprintf(rw, "%s%v\n", line, err)
			rw.Flush()
		}
		if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrHijacked) {
			t.Errorf("Write after Hijack: %v", err)
		}
	})})
	c := dial(t, f)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\nahead\n")
	r := bufio.NewReader(c)
	for _, want := range []string{"ahead\n", "<nil>\n"} {
		if line, err := r.ReadString('\n'); line != want {
			t.Fatalf("got %q, %v", line, err)
		}
	}
	io.WriteString(c, "later\n")
	if rest, err := io.ReadAll(r); string(rest) != "later\n<nil>\n" {
		t.Fatalf("got %q, %v", rest, err)
	}
}

func TestDetached(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d Dispatch) {
		streams := make(chan *Stream, 1)
		f := serve(t, &Server{Dispatch: d, WriteTimeout: time.Hour,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				s, err := Detached(wrapped{w})
				if err != nil {
					t.Error(err)
					return
				}
				s.Write([]byte("data: early\n\n"))
				streams <- s
			})})
		for _, proto := range []string{"HTTP/1.1", "HTTP/1.0"} {
			c := dial(t, f)
			io.WriteString(c, "GET / "+proto+"\r\nHost: h\r\n\r\n")
			s := receive(t, streams)
			closed := make(chan error, 1)
			s.OnClose(func(err error) { closed <- err })
			k := NewChunk([]byte("data: shared\n\n"))
			if err := s.WriteChunk(k); err != nil {
				t.Error(err)
			}
			k.Release()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if err := receive(t, closed); err != nil {
				t.Error(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if got := mustBody(t, resp, err); got != "data: early\n\ndata: shared\n\n" {
				t.Errorf("%s: got %q", proto, got)
			}
			if _, err := s.Write([]byte("x")); !errors.Is(err, myriad.ErrClosed) {
				t.Errorf("Write after Close: %v", err)
			}
		}
	})
}

// OnClose tells how a client has left, however late it is called.
func TestDetachedHearsTheClientGo(t *testing.T) {
	streams := make(chan *Stream, 1)
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := Detached(w)
		if err != nil {
			t.Error(err)
		}
		streams <- s
	})})
	for _, tt := range []struct {
		name  string
		leave func(c *net.TCPConn)
		want  error
	}{
		{"close", func(c *net.TCPConn) { c.Close() }, io.EOF},
		{"end its side", func(c *net.TCPConn) { c.CloseWrite() }, io.EOF},
		{"reset", func(c *net.TCPConn) { c.SetLinger(0); c.Close() }, syscall.ECONNRESET},
	} {
		c := dial(t, f)
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
			t.Fatal(err)
		}
		s := receive(t, streams)
		closed := make(chan error, 2)
		s.OnClose(func(err error) { closed <- err })
		tt.leave(c.(*net.TCPConn))
		first := receive(t, closed)
		s.OnClose(func(err error) { closed <- err })
		if second := receive(t, closed); !errors.Is(first, tt.want) || second != first {
			t.Errorf("%s: OnClose got %v, and once more %v; want %v", tt.name, first, second, tt.want)
		}
	}
}

// A client that ends its side before the handler detaches has left in order, too.
func TestDetachedAfterTheClientHasGone(t *testing.T) {
	entered, gone, closed := make(chan *http1.Conn, 1), make(chan struct{}), make(chan error, 1)
	f := serve(t, &Server{Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			own, _ := exchange.ResponseOf(w)
			entered <- own.X.Carrier.(*http1.Stream).H
			<-gone
			s, err := Detached(w)
			if err != nil {
				t.Error(err)
				return
			}
			s.OnClose(func(err error) { closed <- err })
		})})
	c := dial(t, f)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	h := receive(t, entered)
	c.(*net.TCPConn).CloseWrite()
	for ended := false; !ended; {
		h.Lane.Loop.Post(func() { ended = h.FIN; entered <- h })
		receive(t, entered)
	}
	close(gone)
	if err := receive(t, closed); err != io.EOF {
		t.Errorf("OnClose got %v, want io.EOF", err)
	}
}

// Streams cost no goroutine, and a connection whose stream has ended serves the next request.
func TestDetachedByTheHundred(t *testing.T) {
	const n = 300
	var mu sync.Mutex
	var streams []*Stream
	var all sync.WaitGroup
	all.Add(n)
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/next" {
			return
		}
		s, err := Detached(w)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		streams = append(streams, s)
		mu.Unlock()
		all.Done()
	})})
	var readers []*bufio.Reader
	for range n {
		c := dial(t, f)
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\nGET /next HTTP/1.1\r\nHost: h\r\n\r\n")
		readers = append(readers, bufio.NewReader(c))
	}
	all.Wait()
	for poolOf(f.state).Stats().Running > 0 {
		runtime.Gosched() // ends when the last handler has returned, or never
	}
	k := NewChunk([]byte("all"))
	for _, s := range streams {
		if err := s.WriteChunk(k); err != nil {
			t.Error(err)
		}
		s.Close()
	}
	k.Release()
	for _, r := range readers {
		resp, err := http.ReadResponse(r, nil)
		if got := mustBody(t, resp, err); got != "all" {
			t.Fatalf("got %q", got)
		}
		resp, err = http.ReadResponse(r, nil)
		mustBody(t, resp, err)
	}
}

// What is written while another goroutine closes the stream stands before its end, or fails: the
// next answer begins where the client looks for it.
func TestDetachedWriteAndCloseAtOnce(t *testing.T) {
	streams := make(chan *Stream)
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := Detached(w)
		if err != nil {
			t.Error(err)
		}
		streams <- s
	})})
	c := dial(t, f)
	r := bufio.NewReader(c)
	for range 300 {
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		s := receive(t, streams)
		wrote := make(chan int)
		go func() {
			n := 0
			for {
				if _, err := s.Write([]byte("x")); err != nil {
					break
				}
				n++
				runtime.Gosched() // or on one processor it fills the queue each time
			}
			wrote <- n
		}()
		runtime.Gosched()
		s.Close()
		resp, err := http.ReadResponse(r, nil)
		if got, want := len(mustBody(t, resp, err)), receive(t, wrote); got != want {
			t.Fatalf("%d bytes of %d arrived", got, want)
		}
	}
}

// A stream whose client does not read fails with ErrFull, and goes on when it does.
func TestDetachedBackPressure(t *testing.T) {
	streams := make(chan *Stream, 1)
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := Detached(w)
		if err != nil {
			t.Error(err)
		}
		streams <- s
	})})
	c := dial(t, f)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	s := receive(t, streams)
	room := make(chan struct{}, 1)
	s.OnDrained(func() { room <- struct{}{} })
	piece := make([]byte, 16<<10)
	wrote := 0
	for {
		_, err := s.Write(piece)
		if errors.Is(err, myriad.ErrFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		wrote += len(piece)
	}
	if q := s.Queued(); q > 300<<10 {
		t.Errorf("%d bytes queued", q)
	}
	got := make(chan int)
	go func() {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		got <- len(mustBody(t, resp, err))
	}()
	receive(t, room)
	s.Close()
	if n := receive(t, got); n != wrote {
		t.Errorf("client got %d of %d bytes", n, wrote)
	}
}

func TestShutdownEndsStreams(t *testing.T) {
	t.Parallel()
	streams := make(chan *Stream, 1)
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := Detached(w)
		if err != nil {
			t.Error(err)
		}
		streams <- s
	})})
	c := dial(t, f)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	s := receive(t, streams)
	closed := make(chan error, 1)
	s.OnClose(func(err error) { closed <- err })
	down := make(chan error, 1)
	go func() { down <- f.Shutdown(t.Context()) }()
	if err := receive(t, closed); err != nil {
		t.Error(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	mustBody(t, resp, err)
	c.Close() // or the server waits for that
	if err := receive(t, down); err != nil {
		t.Error(err)
	}
}

// Nor does a read that has been waiting for room to write it, when the client takes what was to go
// before.
func TestHijackRefusesContinueThatWaits(t *testing.T) {
	const before = 1 << 20
	w, peer := slow(t, &Server{Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			x := exchangeOf(w)
			c, system := x.Conn(), x.Lane.Server.Engine.System()
			c.SetWriteLimit(before / 2)
			c.Write(make([]byte, before))
			refused, read := system.NewParker(), system.NewParker()
			system.(*sim.World).AfterFunc(time.Second, refused.Unpark)
			system.Go(func() {
				if n, err := r.Body.Read(make([]byte, 1)); n != 0 || err != http.ErrHijacked {
					t.Errorf("Read beside Hijack: %d, %v", n, err)
				}
				read.Unpark()
			})
			refused.Park()
			if x.Lane.Server.Engine.Stats().Full == 0 {
				t.Error("there was room for 100 Continue")
			}
			nc, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			read.Park()
		})})
	peer.StopReading()
	peer.Write([]byte(post + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"))
	w.RunFor(2 * time.Second)
	peer.Resume()
	w.RunFor(2 * time.Second)
	if n := peer.Count(); n != before {
		t.Errorf("the client has got %d bytes of %d: ...%.100q", n, before, peer.Received()[before:])
	}
}

// A call for a connection that has gone fails at once.
func TestTakeoverOfALostConnection(t *testing.T) {
	began, took := make(chan bool, 3), make(chan error, 3)
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began <- true
		<-r.Context().Done()
		switch r.URL.Path {
		case "/hijack":
			_, _, err := w.(http.Hijacker).Hijack()
			took <- err
		case "/upgrade":
			took <- Upgrade(w, []byte(switching), &shout{make(chan struct{}), make(chan error, 1)})
		case "/detach":
			_, err := Detached(w)
			took <- err
		}
	})})
	for _, path := range []string{"/hijack", "/upgrade", "/detach"} {
		c := dial(t, f)
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)
		<-began // no handler begins for a client that has gone
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
		if err := <-took; err == nil {
			t.Errorf("%s: no error", path)
		}
	}
}
