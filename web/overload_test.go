package web

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
)

// blocker is a handler that waits, except for /quick, and hijacks for /hijack.
type blocker struct {
	entered chan string
	release chan struct{}
}

func newBlocker() *blocker { return &blocker{make(chan string, 10_000), make(chan struct{})} }

func (b *blocker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/hijack" {
		nc, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer nc.Close()
	}
	b.entered <- r.URL.Path
	if r.URL.Path != "/quick" {
		<-b.release
	}
	io.WriteString(w, r.URL.Path)
}

func (b *blocker) await(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		select {
		case <-b.entered:
		case <-time.After(hangs):
			t.Fatalf("%d of %d handlers have begun", i, n)
		}
	}
}

func send(t *testing.T, f *fixture, path string) *asker {
	a := ask(t, f)
	fmt.Fprintf(a.c, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)
	return a
}

// mustRefuse reads a 503 that says when to come again.
func (a *asker) mustRefuse() {
	a.t.Helper()
	resp, err := http.ReadResponse(a.r, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	mustBody(a.t, resp, nil)
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		a.t.Errorf("status %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
}

// A thousand handlers that wait for something run at once.
func TestThousandHandlersAtOnce(t *testing.T) {
	b := newBlocker()
	f := serve(t, &Server{Handler: b})
	var all []*asker
	for range 1000 {
		all = append(all, send(t, f, "/slow"))
	}
	b.await(t, 1000)
	close(b.release)
	for _, a := range all {
		a.answer()
	}
}

// Requests for which a worker is free take no place of the queue, also when they all come at once.
func TestQueueCountsWaitingRequests(t *testing.T) {
	b := newBlocker()
	f := serveOn(t, &Server{Handler: b, Dispatch: DispatchPool, Workers: 100, Queue: 1}, myriad.Config{Loops: 1})
	var all []*asker
	for range 50 {
		all = append(all, ask(t, f))
	}
	idle, sent := make(chan struct{}), make(chan struct{})
	f.Engine.Loops()[0].Do(func() { close(idle); <-sent }) // what is sent meanwhile arrives in one poll
	<-idle
	for _, a := range all {
		fmt.Fprint(a.c, "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
	}
	close(sent)
	b.await(t, 50)
	close(b.release)
	for _, a := range all {
		if got := a.answer(); got != "/slow" {
			t.Errorf("answer %q", got)
		}
	}
}

func TestOverloadQueue(t *testing.T) {
	b := newBlocker()
	f := serveOn(t, &Server{Handler: b, Workers: 2, Queue: 3}, myriad.Config{Loops: 1})
	var all []*asker
	for range 2 {
		all = append(all, send(t, f, "/slow"))
	}
	b.await(t, 2)
	for range 8 {
		all = append(all, send(t, f, "/slow"))
	}
	status := make(chan int, len(all))
	for _, a := range all {
		go func() {
			resp, err := http.ReadResponse(a.r, nil)
			if err != nil {
				t.Error(err)
				status <- 0
				return
			}
			resp.Body.Close()
			status <- resp.StatusCode
		}()
	}
	for range 5 { // two run, three wait
		if got := <-status; got != 503 {
			t.Errorf("status %d while all handlers are blocked", got)
		}
	}
	close(b.release)
	for range 5 {
		if got := <-status; got != 200 {
			t.Errorf("status %d for one that was let wait", got)
		}
	}
}

func TestOverloadRefuse(t *testing.T) {
	b := newBlocker()
	f := serve(t, &Server{Handler: b, Workers: 2, Overload: OverloadRefuse})
	hijacked := send(t, f, "/hijack")
	b.await(t, 1)
	one, two := send(t, f, "/slow"), send(t, f, "/slow") // the hijacked one does not count
	b.await(t, 2)
	for range 5 {
		send(t, f, "/slow").mustRefuse()
	}
	close(b.release)
	for _, a := range []*asker{one, two} {
		if got := a.answer(); got != "/slow" {
			t.Errorf("answered %q", got)
		}
	}
	io.ReadAll(hijacked.r)
	for f.state.Load.Handlers() > 0 {
		time.Sleep(time.Millisecond)
	}
	if got := send(t, f, "/slow").answer(); got != "/slow" {
		t.Errorf("after the overload: %q", got)
	}
}

// While requests wait no new connection is accepted; those that are connected are served in the
// end, and then the others too.
func TestOverloadPause(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		t.Run(fmt.Sprintf("foreign listener %v", foreign), func(t *testing.T) {
			b := newBlocker()
			f := serveOn(t, &Server{Handler: b, Workers: 1, Overload: OverloadPause}, myriad.Config{Loops: 1})
			addr := f.addr
			if foreign {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				addr = l.Addr().String()
				go f.Serve(l)
			}
			dial := func() *asker {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				c.SetDeadline(time.Now().Add(hangs))
				return &asker{t, c, bufio.NewReader(c)}
			}
			one, two := dial(), dial()
			io.WriteString(one.c, "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
			b.await(t, 1)
			io.WriteString(two.c, "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
			for paused := false; !paused; time.Sleep(time.Millisecond) {
				paused = f.state.Load.Paused()
			}
			onLoop(t, f, func() {}) // the loop has come to the pause
			before := f.state.Conns.Load()
			var late []*asker
			for range 5 {
				a := dial()
				io.WriteString(a.c, "GET /quick HTTP/1.1\r\nHost: h\r\n\r\n")
				late = append(late, a)
			}
			onLoop(t, f, func() {})
			allowed := int64(0)
			if foreign {
				allowed = 1 // which Accept was waiting for
			}
			if n := f.state.Conns.Load(); n > before+allowed {
				t.Errorf("%d connections were accepted while the server was paused", n-before)
			}
			close(b.release)
			for _, a := range append(late, one, two) {
				if got := a.answer(); !strings.HasPrefix(got, "/") {
					t.Errorf("answered %q", got)
				}
			}
		})
	}
}

func onLoop(t *testing.T, f *fixture, do func()) {
	t.Helper()
	done := make(chan struct{})
	if err := f.Engine.Loops()[0].Do(func() { do(); close(done) }); err != nil {
		t.Fatal(err)
	}
	<-done
}

func TestOverloadChecked(t *testing.T) {
	for _, s := range []*Server{{Overload: OverloadPause + 1}, {Workers: -1}, {Queue: -1}} {
		if _, err := s.Listen("tcp", "127.0.0.1:0"); err == nil || !strings.Contains(err.Error(), "Server.") {
			t.Errorf("%v, Workers %d, Queue %d: %v", s.Overload, s.Workers, s.Queue, err)
		}
	}
}

// A widened is an executor that counts how many more tasks it has been told to run.
type widened struct {
	driver.Executor
	by int
}

func (w *widened) Widen(n int) { w.by += n }

// widen makes the handlers of a server run on a widened.
func (s *stage) widen(of *Server) *widened {
	w := &widened{Executor: s.Executor()}
	of.state.Tasks.UsePool(w)
	return w
}

// While a handler waits for its client, one more handler may run: one, even if several of its
// goroutines wait. While a handler waits for its turn behind another one, none more may run.
func TestWaitingHandlersDoNotCount(t *testing.T) {
	var st *stage
	s := &Server{Dispatch: DispatchPool, PipelineDepth: 2,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				w.Write(make([]byte, 4<<20))
				return
			}
			st.Go(func() { r.Body.Read(make([]byte, 1)) })
			io.ReadFull(r.Body, make([]byte, 4))
			st.wait(2 * time.Millisecond)
			io.Copy(io.Discard, r.Body)
		})}
	st = calmStage(t, s)
	pool := st.widen(s)
	p := st.Dial(st.at)
	step := func(what, more string, want int) {
		p.Write([]byte(more))
		if st.RunFor(time.Millisecond); pool.by != want {
			t.Errorf("%s: there is room for %d more, want %d", what, pool.by, want)
		}
	}
	step("two goroutines wait for the body", post+"Content-Length: 10\r\n\r\n", 1)
	step("one waits for it", "abc", 1)
	step("none waits", "de", 0)
	st.RunFor(10 * time.Millisecond)
	step("it waits again", "", 1)
	step("the request is answered", "fghij", 0)
	p.StopReading()
	step("an answer is not read, and one waits behind it", strings.Repeat(get+"\r\n", 2), 1)
	p.Resume()
	st.RunFor(time.Second)
	step("all is read", "", 0)
	if got := len(answers(t, string(p.Received()))); got != 3 {
		t.Errorf("%d answers, want 3", got)
	}
	p.Close()
}
