package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// This file holds lines of pipelined requests to what a client sees of them, on a simulator without
// faults: a handler waits exactly as long as the test says.

// A stage is a server with one loop in a simulated world.
type stage struct {
	*sim.World
	engine *myriad.Engine
	at     net.Addr
	conn   *myriad.Conn // the last connection
	loop   uint64       // the goroutine that has opened it
	states []http.ConnState
}

// newStage serves s until the test ends. system is w or something around it.
func newStage(t *testing.T, w *sim.World, system driver.System, s *Server, limit int) *stage {
	t.Helper()
	engine, err := myriad.Start(myriad.Config{Loops: 1, System: system, Logger: quiet(), WriteLimit: limit})
	if err != nil {
		t.Fatal(err)
	}
	st := &stage{World: w, engine: engine}
	s.Engine = engine
	s.ConnState = func(nc net.Conn, state http.ConnState) {
		if state == http.StateNew {
			st.conn, st.loop = nc.(*myriad.Conn), driver.Goroutine()
		}
		st.states = append(st.states, state)
	}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	st.at = ln.Addr()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hangs)
		defer cancel()
		if t.Failed() { // then what the test has left may never end
			time.AfterFunc(time.Second, cancel)
		}
		if err := errors.Join(s.Close(), s.Shutdown(ctx), engine.Shutdown(ctx)); err != nil {
			t.Error(err)
			return
		}
		w.Settle()
		w.Check(t)
	})
	return st
}

func calmStage(t *testing.T, s *Server) *stage {
	w := newWorld(1, sim.Calm())
	return newStage(t, w, w, s, 0)
}

// wait is a handler's way to take d of the world's time.
func (s *stage) wait(d time.Duration) { s.NewParker().ParkFor(d) }

// onLoop reports whether its caller runs inline.
func (s *stage) onLoop() bool { return driver.Goroutine() == s.loop }

// ask sends requests for paths and lets the world run for d.
func (s *stage) ask(p *sim.Peer, d time.Duration, paths ...string) {
	for _, path := range paths {
		fmt.Fprintf(writerFunc(p.Write), "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)
	}
	s.RunFor(d)
}

// However the requests come, the handlers that run for one connection are PipelineDepth and no
// more.
func TestPipelineDepthIsExact(t *testing.T) {
	const n = 20
	for _, depth := range []int{2, 3, 8} {
		for _, together := range []int{1, 2, n} {
			var st *stage
			running, most := 0, 0
			st = calmStage(t, &Server{PipelineDepth: depth, Dispatch: DispatchPool,
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					running++
					most = max(most, running)
					st.wait(10 * time.Millisecond)
					running--
					io.WriteString(w, r.URL.Path)
				})})
			p := st.Dial(st.at)
			for i := 0; i < n; i += together {
				st.ask(p, time.Microsecond, paths(n)[i:i+together]...)
			}
			st.RunFor(time.Second)
			if got := answers(t, string(p.TakeReceived())); most != depth || fmt.Sprint(got) != fmt.Sprint(paths(n)) {
				t.Errorf("depth %d, %d requests at a time: %d handlers ran together, answers %q", depth, together, most,
					got)
			}
			p.Close()
		}
	}
}

// With a depth of 1 one goroutine runs at most 32 requests that have come together. The next one is
// dispatched anew: on the loop, because those before it were quick.
func TestChainIsBounded(t *testing.T) {
	var st *stage
	var onLoop []bool
	goroutines := map[uint64]bool{}
	st = calmStage(t, &Server{PipelineDepth: 1, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		onLoop = append(onLoop, st.onLoop())
		goroutines[driver.Goroutine()] = true
	})})
	p := st.Dial(st.at)
	st.ask(p, time.Second, strings.Split(strings.Repeat("/ ", dispatch.QuickRow)+"/", " ")...)
	if len(onLoop) != dispatch.QuickRow+1 || len(goroutines) != 2 {
		t.Fatalf("%d handlers have run on %d goroutines, want %d on 2", len(onLoop), len(goroutines),
			dispatch.QuickRow+1)
	}
	for i, is := range onLoop {
		if is != (i >= dispatch.QuickRow) {
			t.Errorf("request %d on the loop: %v", i, is)
		}
	}
	p.Close()
}

// A handler of a chain that has not begun when its connection is lost never runs. The connection is
// lost while the handler before it runs, for which Shutdown waits, or when that has returned and
// its answer was taken.
func TestLostClientsHandlersDoNotBegin(t *testing.T) {
	for name, returned := range map[string]bool{"while one runs": false, "between two": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1, sim.Calm())
			world := &haltingWorld{World: w, forTime: 10 * time.Millisecond}
			var st *stage
			ran, ended := "", 0
			s := &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ran += r.URL.Path
				if r.URL.Path == "/1" && returned {
					world.handler, world.looks = driver.Goroutine(), 2 // for the date, and for how long it has taken
				} else if r.URL.Path == "/1" {
					st.wait(10 * time.Millisecond)
				}
				ended++
			})}
			st = newStage(t, w, world, s, 0)
			p := st.Dial(st.at)
			st.ask(p, time.Millisecond, "/0", "/1", "/2", "/3")
			if returned != (ended == 2) || returned != (len(answers(t, string(p.Received()))) == 2) {
				t.Fatalf("not what the test is about: %d handlers have returned", ended)
			}
			p.Reset()
			st.RunFor(time.Millisecond)
			if err := s.Shutdown(atLength(t)); err != nil || ended != 2 {
				t.Errorf("Shutdown: %v, when %d handlers had ended", err, ended)
			}
			st.RunFor(time.Second)
			if ran != "/0/1" {
				t.Errorf("these handlers ran: %s, want /0/1", ran)
			}
		})
	}
}

// A handler runs on the loop while at most 64 KiB of answers wait for its client, and on the
// pool above that.
func TestInlineWhileClientsRead(t *testing.T) {
	const most = 64 << 10
	var st *stage
	within, above := 0, 0
	w := newWorld(1, sim.Calm())
	st = newStage(t, w, w, &Server{Dispatch: DispatchInline,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			queued := st.conn.Queued()
			if st.onLoop() != (queued <= most) {
				t.Errorf("on the loop: %v, with %d bytes queued", st.onLoop(), queued)
			}
			if queued <= most {
				within++
			} else {
				above++
			}
			w.Write(make([]byte, 4<<10))
		})}, 1<<20)
	p := st.Dial(st.at)
	st.RunFor(time.Millisecond)
	p.StopReading()
	for range 60 {
		st.ask(p, time.Millisecond, "/")
	}
	if within < 16 || above < 10 {
		t.Errorf("%d handlers had at most %d bytes before them and %d more: not what the test is about", within, most,
			above)
	}
	p.Resume()
	st.RunFor(time.Second)
	within, above = 0, 0
	st.ask(p, time.Millisecond, "/")
	if within != 1 || len(answers(t, string(p.Received()))) != 61 {
		t.Errorf("after it has read, %d of 1 on the loop", within)
	}
	p.Close()
}

// A connection whose request's body was late ends with the answer, although its head has promised
// to keep it: what comes of the body is not waited for, nor taken for a request.
func TestLateBodyEndsItsConnection(t *testing.T) {
	var st *stage
	var late error
	st = calmStage(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			t.Error("what followed a body that was late has been served")
			return
		}
		c := http.NewResponseController(w)
		c.SetReadDeadline(st.Now().Add(10 * time.Millisecond))
		io.ReadFull(r.Body, make([]byte, 3))
		w.Header().Set("Content-Length", "2")
		w.Write([]byte("ok"))
		c.Flush()
		_, late = r.Body.Read(make([]byte, 1))
	})})
	p := st.Dial(st.at)
	p.Write([]byte(post + "Content-Length: 10\r\n\r\nabc"))
	st.RunFor(50 * time.Millisecond)
	got := string(p.Received())
	if !errors.Is(late, os.ErrDeadlineExceeded) || strings.Contains(got, "Connection: close") ||
		!strings.HasSuffix(got, "\r\n\r\nok") {
		t.Fatalf("not what the test is about: %v, %q", late, got)
	}
	if !p.Ended() {
		t.Error("the connection is open 40 ms after the body was late and the handler has returned")
	}
	p.Write([]byte("defghij" + get + "\r\n"))
	st.RunFor(time.Minute)
	if again := string(p.Received()); again != got {
		t.Errorf("then came %q", again[len(got):])
	}
	p.Close()
}

// A handler of a chain may find the queue full before the loop has gone on to it: the room that
// comes then is announced to the one before. It must not wait for another announcement.
//
// Here the first handler sends two files, of which the second finds no place. While the loop is
// busy with the first file, the second finds it, the first handler returns, and the next fills the
// queue. When the loop comes back from the driver it sends all of that, and calls Drained for the
// refusal that the first handler has had.
func TestRoomComesBeforeTheTurn(t *testing.T) {
	const limit = 8 << 10
	w := newWorld(1, sim.Calm())
	world := &haltingWorld{World: w, forTime: 10 * time.Microsecond}
	text := bytes.Repeat([]byte("0123456789abcdef"), 256)
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var full uint64
	var st *stage
	st = newStage(t, w, world, &Server{Dispatch: DispatchPool, WriteTimeout: time.Hour,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/files" {
				w.Header().Set("Content-Length", fmt.Sprint(2*len(text)))
				copyFile(t, w, name)
				world.handler, world.looks = driver.Goroutine(), 2 // the second is after the refusal
				copyFile(t, w, name)
				full = st.engine.Stats().Full
				return
			}
			for range 10 {
				w.Write(text[:2<<10])
				w.(http.Flusher).Flush()
			}
		})}, limit)
	p := st.Dial(st.at)
	st.ask(p, time.Second, "/files", "/behind")
	if full != 1 || !world.halted {
		t.Fatalf("not what the test is about: %d calls were refused, the loop was halted: %v", full, world.halted)
	}
	got := answers(t, string(p.Received()))
	if len(got) != 2 || got[0] != string(text)+string(text) || len(got[1]) != 20<<10 {
		t.Errorf("%d answers; the handler of the second waits for room that there is", len(got))
	}
	p.Close()
}

func copyFile(t *testing.T, w io.Writer, name string) {
	f, err := os.Open(name)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	if _, err := io.Copy(w, f); err != nil {
		t.Error(err)
	}
}

// A haltingWorld lets others run where a goroutine of a real one may lose its processor: its loop
// while a file is given to the driver, and a handler when it looks at the clock.
type haltingWorld struct {
	*sim.World
	handler uint64 // the goroutine
	looks   int    // it lets others run at that look, forTime
	forTime time.Duration
	halted  bool // the loop has been, in time
}

func (w *haltingWorld) Now() time.Time {
	if w.looks > 0 && driver.Goroutine() == w.handler {
		if w.looks--; w.looks == 0 {
			w.NewParker().ParkFor(w.forTime)
		}
	}
	return w.World.Now()
}

func (w *haltingWorld) Open(loop uint8, o driver.Options) (driver.Driver, error) {
	d, err := w.World.Open(loop, o)
	return haltingDriver{d, w}, err
}

type haltingDriver struct {
	driver.Driver
	w *haltingWorld
}

func (d haltingDriver) SendFile(id driver.ID, f driver.File, off, n int64) (int64, error) {
	queued, err := d.Driver.SendFile(id, f, off, n)
	if !d.w.halted {
		d.w.halted = d.w.handler != 0
		d.w.NewParker().ParkFor(time.Millisecond)
	}
	return queued, err
}

// Requests in a line have their own WriteTimeout, which begins when they are accepted: also if they
// wait for an answer before theirs.
func TestWriteTimeoutBehind(t *testing.T) {
	const timeout = 10 * time.Millisecond
	var st *stage
	failed := map[string]error{}
	st = calmStage(t, &Server{PipelineDepth: 3, WriteTimeout: timeout, Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/late" {
				st.wait(timeout + time.Millisecond)
			}
			_, err := w.Write([]byte(r.URL.Path))
			failed[r.URL.Path] = errors.Join(err, http.NewResponseController(w).Flush())
		})})
	p := st.Dial(st.at)
	st.ask(p, time.Second, "/0", "/1", "/late")
	if failed["/0"] != nil || failed["/1"] != nil || !errors.Is(failed["/late"], os.ErrDeadlineExceeded) {
		t.Errorf("got %v", failed)
	}
	if got := answers(t, string(p.Received())); fmt.Sprint(got) != "[/0 /1]" || !p.Ended() {
		t.Errorf("got %q, the connection has ended: %v", got, p.Ended())
	}
	p.Close()
}

// A promoted request whose client does not read its answer has WriteTimeout, and no longer: in a
// chain from when its handler has begun.
func TestUnreadAnswerBehind(t *testing.T) {
	const timeout = time.Second
	for _, depth := range []int{1, 3} {
		t.Run(fmt.Sprint("depth ", depth), func(t *testing.T) {
			var st *stage
			var failed error
			st = calmStage(t, &Server{PipelineDepth: depth, WriteTimeout: timeout, Dispatch: DispatchPool,
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/large" {
						_, failed = w.Write(make([]byte, 4<<20))
					}
				})})
			p := st.Dial(st.at)
			p.StopReading()
			st.ask(p, timeout*3/4, "/0", "/1", "/large", "/3")
			if failed != nil || p.Closed() {
				t.Fatalf("before %v: %v", timeout, failed)
			}
			st.RunFor(timeout / 2)
			if !errors.Is(failed, os.ErrDeadlineExceeded) {
				t.Errorf("after %v: %v", timeout, failed)
			}
			p.Resume()
			st.RunFor(time.Second)
			if !p.Closed() && !p.Ended() {
				t.Error("the connection is open")
			}
			p.Close()
		})
	}
}

// Behind an answer that was not whole, or that ends the connection, no other handler of a chain
// begins.
func TestChainEndsWithAnAnswer(t *testing.T) {
	for _, last := range []string{"/panic", "/close", "/short"} {
		ran := ""
		st := calmStage(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ran += r.URL.Path
			switch r.URL.Path {
			case "/panic":
				panic(http.ErrAbortHandler)
			case "/close":
				w.Header().Set("Connection", "close")
			case "/short":
				w.Header().Set("Content-Length", "10")
			}
		})})
		p := st.Dial(st.at)
		st.ask(p, time.Second, "/0", last, "/2", "/3")
		if want := "/0" + last; ran != want || !p.Ended() {
			t.Errorf("these ran: %s, want %s; the connection has ended: %v", ran, want, p.Ended())
		}
		p.Close()
	}
}

// What is held of an answer is bounded: its handler waits above 32 KiB, and goes on when it is its
// turn. A single larger write is taken whole.
func TestHeldIsBounded(t *testing.T) {
	const most = 32 << 10
	var st *stage
	written := map[string]int{}
	st = calmStage(t, &Server{PipelineDepth: 4, Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/first" {
				st.wait(10 * time.Millisecond)
				return
			}
			w.Header().Set("Content-Length", fmt.Sprint(100<<10))
			for written[r.URL.Path] < 100<<10 {
				n := 4 << 10
				if r.URL.Path == "/large" && written[r.URL.Path] == 0 {
					w.WriteHeader(200)
					w.(http.Flusher).Flush()
					n = 28 << 10
				}
				n, _ = w.Write(make([]byte, n))
				w.(http.Flusher).Flush()
				written[r.URL.Path] += n
			}
		})})
	p := st.Dial(st.at)
	st.ask(p, 5*time.Millisecond, "/first", "/small", "/large")
	for path, n := range written {
		if n > most || n < most-8<<10 {
			t.Errorf("%s: %d bytes are written behind an answer that has not begun", path, n)
		}
	}
	st.RunFor(time.Second)
	if got := answers(t, string(p.Received())); len(got) != 3 || len(got[1]) != 100<<10 || len(got[2]) != 100<<10 {
		t.Errorf("%d answers", len(got))
	}
	p.Close()
}

// A request in the line that fails ends the connection only when it is its turn: those before it
// are answered whole.
func TestFailureWaitsForItsTurn(t *testing.T) {
	for path, ended := range map[string]string{"/panic": "[/slow]", "/cut": "[/slow cut: part]"} {
		var st *stage
		st = calmStage(t, &Server{PipelineDepth: 4, Dispatch: DispatchPool,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/slow":
					st.wait(10 * time.Millisecond)
				case "/cut":
					w.Header().Set("Content-Length", "10")
					io.WriteString(w, "part")
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				case "/panic":
					panic(http.ErrAbortHandler)
				}
				io.WriteString(w, r.URL.Path)
			})})
		p := st.Dial(st.at)
		st.ask(p, 5*time.Millisecond, "/slow", path, "/behind")
		if p.Count() > 0 || p.Ended() {
			t.Errorf("%s: before the first answer came %q, ended: %v", path, p.Received(), p.Ended())
		}
		st.RunFor(time.Second)
		if got := fmt.Sprint(answers(t, string(p.Received()))); got != ended || !p.Ended() {
			t.Errorf("%s: got %s, want %s; ended: %v", path, got, ended, p.Ended())
		}
		p.Close()
	}
}

// When a connection is lost, handlers of the line that have begun learn it, and Shutdown waits for
// them.
func TestLineLearnsOfItsLoss(t *testing.T) {
	var st *stage
	told, ended := 0, 0
	s := &Server{PipelineDepth: 4, Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for range 20 {
				st.wait(time.Millisecond)
				if r.Context().Err() != nil {
					told++
					break
				}
			}
			ended++
			if _, err := w.Write(make([]byte, 100<<10)); err == nil {
				t.Error("an answer to a client that has gone was taken")
			}
		})}
	st = calmStage(t, s)
	p := st.Dial(st.at)
	st.ask(p, 5*time.Millisecond, "/0", "/1", "/2")
	p.Reset()
	st.RunFor(100 * time.Microsecond)
	if err := s.Shutdown(atLength(t)); err != nil || told != 3 || ended != 3 {
		t.Errorf("Shutdown: %v; %d handlers were told and %d have ended, of 3", err, told, ended)
	}
}
