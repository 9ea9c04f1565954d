package web

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// asker is a connection that asks and waits for each answer.
type asker struct {
	t testing.TB
	c net.Conn
	r *bufio.Reader
}

func ask(t testing.TB, f *fixture) *asker {
	c := dial(t, f)
	return &asker{t, c, bufio.NewReader(c)}
}

func (a *asker) get(path string) string {
	fmt.Fprintf(a.c, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)
	return a.answer()
}

// answer waits for one as long as dial does for all: of tests that learn how many there will be
// depends on what else the machine does.
func (a *asker) answer() string {
	a.c.SetDeadline(time.Now().Add(hangs))
	resp, err := http.ReadResponse(a.r, nil)
	if err != nil {
		a.t.Errorf("read an answer: %v", err)
		runtime.Goexit()
	}
	return mustBody(a.t, resp, nil)
}

// where tells on which kind of goroutine the handler with that ResponseWriter runs. It takes next
// to nothing of the time in which a handler is quick.
func where(w http.ResponseWriter) string {
	if r, err := exchange.ResponseOf(w); err == nil && r.X.Inlined {
		return "loop"
	}
	return "pool"
}

func tellWhere(w http.ResponseWriter, r *http.Request) { io.WriteString(w, where(w)) }

// oneLoop serves with an engine of one loop, so that all connections are neighbours.
func oneLoop(t testing.TB, d Dispatch, h http.HandlerFunc) *fixture {
	return serveOn(t, &Server{Dispatch: d, Handler: h}, myriad.Config{Loops: 1})
}

// learn asks until path is answered on the loop. The machine may be busy, and runs look slow then.
func learn(a *asker, path string) {
	a.t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; {
		if a.get(path) == "loop" {
			return
		}
	}
	a.t.Fatalf("%s never came to the loop", path)
}

func TestAutoLearns(t *testing.T) {
	f := oneLoop(t, DispatchAuto, tellWhere)
	a := ask(t, f)
	for i := range 32 {
		if got := a.get("/quick"); got != "pool" {
			t.Fatalf("run %d of an unknown route: on the %s", i, got)
		}
	}
	learn(a, "/quick")
	if a.get("/other") != "pool" {
		t.Error("an unknown route runs on the loop")
	}
	for i := range 1000 { // a thousand resources with an id each
		a.get(fmt.Sprintf("/things/%d/parts", i))
	}
	learn(a, "/things/123456/parts")
}

// A quick route that blocks once costs its neighbours a moment; its own connection goes on too.
func TestAutoBlocks(t *testing.T) {
	release := make(chan struct{})
	f := oneLoop(t, DispatchAuto, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "block" {
			<-release
		}
		tellWhere(w, r)
	})
	a, b := ask(t, f), ask(t, f)
	untilTakenOver(t, f, func() {
		learn(a, "/")
		fmt.Fprintf(a.c, "GET /?block HTTP/1.1\r\nHost: h\r\n\r\n")
		for range 100 {
			b.get("/")
		}
		release <- struct{}{}
		a.answer()
	})
	learn(a, "/")
}

// untilTakenOver runs f until a takeover is counted. The last run that a route is learned by may
// have been slow as well, on a busy machine, and what is done next is then done by the pool.
func untilTakenOver(t *testing.T, f *fixture, run func()) {
	t.Helper()
	for range 50 {
		before := f.Engine.Stats().Overstays
		if run(); f.Engine.Stats().Overstays > before {
			return
		}
	}
	t.Error("no takeover was counted")
}

// The server, and package websocket, convert a Dispatch to a Mode.
func TestDispatchIsMode(t *testing.T) {
	for d, m := range map[Dispatch]dispatch.Mode{DispatchAuto: dispatch.Auto, DispatchPool: dispatch.Pool,
		DispatchInline: dispatch.Inline} {
		if dispatch.Mode(d) != m {
			t.Errorf("%v is mode %d, want %d", d, dispatch.Mode(d), m)
		}
	}
}

// A handler that computes is taken over like one that waits, also with one processor: it goes on
// until its neighbour was answered a hundred times, which only another goroutine of the loop can
// have done.
func TestBurnerIsTakenOver(t *testing.T) {
	for _, d := range []Dispatch{DispatchInline, DispatchAuto} {
		t.Run(d.String(), func(t *testing.T) {
			var answered, gaveUp atomic.Bool
			f := oneLoop(t, d, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RawQuery == "burn" {
					for began := time.Now(); !answered.Load() && !gaveUp.Load(); {
						gaveUp.Store(time.Since(began) > 20*time.Second)
					}
				}
				tellWhere(w, r)
			})
			a, b := ask(t, f), ask(t, f)
			untilTakenOver(t, f, func() {
				learn(a, "/")
				answered.Store(false)
				fmt.Fprintf(a.c, "GET /?burn HTTP/1.1\r\nHost: h\r\n\r\n")
				for range 100 {
					b.get("/")
				}
				answered.Store(true)
				a.answer()
			})
			if gaveUp.Load() {
				t.Error("the neighbour waited until the handler had returned")
			}
			learn(a, "/")
		})
	}
}

// What blocks all the time does not stay on the loop.
func TestAutoDemotes(t *testing.T) {
	f := oneLoop(t, DispatchAuto, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "slow" {
			time.Sleep(20 * time.Millisecond)
		}
		tellWhere(w, r)
	})
	a := ask(t, f)
	untilTakenOver(t, f, func() {
		learn(a, "/")
		before := f.Engine.Stats().Overstays
		row := 0 // of slow runs on the pool: the first ones are noticed when the monitor looks, which may be held up
		for deadline := time.Now().Add(hangs); row < 10 && time.Now().Before(deadline); row++ {
			if a.get("/?slow") == "loop" {
				row = -1
			}
		}
		if got := a.get("/"); got != "pool" {
			t.Errorf("after slow runs it is on the %s", got)
		}
		if n := f.Engine.Stats().Overstays - before; n > 4 {
			t.Errorf("%d takeovers, want two strikes and little more", n)
		}
	})
}

// Everything that may wait is legal for a handler on the loop.
func TestInlineWaits(t *testing.T) {
	big := strings.Repeat("x", 4<<20)
	for name, h := range map[string]http.HandlerFunc{
		"full queue": func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, big) },
		"own request": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/inner" {
				io.WriteString(w, big)
				return
			}
			resp, err := http.Get("http://" + r.Context().Value(http.LocalAddrContextKey).(net.Addr).String() +
				"/inner")
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			io.Copy(w, resp.Body)
			http.DefaultClient.CloseIdleConnections()
		},
		"hijack": func(w http.ResponseWriter, r *http.Request) {
			nc, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			fmt.Fprintf(rw, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(big), big)
			rw.Flush()
		},
		"detached": func(w http.ResponseWriter, r *http.Request) {
			s, err := Detached(w)
			if err != nil {
				t.Error(err)
				return
			}
			s.SetWriteLimit(8 << 20)
			io.WriteString(s, big)
			s.Close()
		},
		"flush and goroutine": func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			done := make(chan struct{})
			go func() {
				defer close(done)
				io.WriteString(w, big)
			}()
			<-done
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := ask(t, oneLoop(t, DispatchInline, h))
			fmt.Fprintf(a.c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			if got := a.answer(); got != big {
				t.Errorf("%d bytes, want %d", len(got), len(big))
			}
		})
	}
}

// What a handler flushes leaves at once, whatever it does next: it does not wait for the loop to be
// taken from it.
func TestFlushLeavesLoop(t *testing.T) {
	for name, n := range map[string]int{"gathered": 5, "queued by Write": 100 << 10} {
		t.Run(name, func(t *testing.T) { flushOnLoop(t, n) })
	}
}

func flushOnLoop(t *testing.T, n int) {
	read := make(chan struct{})
	f := oneLoop(t, DispatchInline, func(w http.ResponseWriter, r *http.Request) {
		w.Write(make([]byte, n))
		w.(http.Flusher).Flush()
		<-read
		w.(http.Flusher).Flush() // of nothing
	})
	defer http.DefaultClient.CloseIdleConnections()
	for range 20 { // the loop may have been taken away before
		resp, err := http.Get(f.url("/"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		handed := f.Engine.Stats().Handoffs > 0
		read <- struct{}{}
		resp.Body.Close()
		if handed {
			return
		}
	}
	t.Errorf("20 answers were flushed on the loop, and it was handed over in none")
}

// So does an informational answer.
func TestEarlyHintsLeaveLoop(t *testing.T) {
	read := make(chan struct{})
	f := oneLoop(t, DispatchInline, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		<-read
	})
	for range 20 {
		a := ask(t, f)
		fmt.Fprintf(a.c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		if line, err := a.r.ReadString('\n'); line != "HTTP/1.1 103 Early Hints\r\n" {
			t.Fatalf("%q, %v", line, err)
		}
		handed := f.Engine.Stats().Handoffs > 0
		read <- struct{}{}
		if handed {
			return
		}
	}
	t.Errorf("20 early hints were sent on the loop, and it was handed over for none")
}

// Failing handlers on the loop cost their connection and nothing else, before and after a takeover.
func TestInlineFails(t *testing.T) {
	f := oneLoop(t, DispatchInline, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.RawQuery, "late") {
			time.Sleep(10 * time.Millisecond)
		}
		switch {
		case strings.Contains(r.URL.RawQuery, "panic"):
			panic("as the test wants")
		case strings.Contains(r.URL.RawQuery, "goexit"):
			runtime.Goexit()
		}
		tellWhere(w, r)
	})
	good := ask(t, f)
	for _, query := range []string{"panic", "goexit", "late,panic", "late,goexit"} {
		if got := raw(t, f, "GET /?"+query+" HTTP/1.1\r\nHost: h\r\n\r\n", false); got != "" {
			t.Errorf("%s was answered: %q", query, got)
		}
		for range 10 {
			good.get("/")
		}
	}
}

// stressAnswers is how many answers the stress checks; MYRIAD_DISPATCH_STRESS asks for more.
func stressAnswers(t *testing.T) int {
	if s := os.Getenv("MYRIAD_DISPATCH_STRESS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("MYRIAD_DISPATCH_STRESS: %v", err)
		}
		return n
	}
	return 30_000
}

// Clients pipeline, post, and check every byte, while some handlers sleep, burn the processor,
// panic or write more than their client reads.
func TestDispatchStress(t *testing.T) {
	t.Parallel()
	for _, d := range []Dispatch{DispatchAuto, DispatchInline} {
		t.Run(d.String(), func(t *testing.T) {
			f := serveOn(t, &Server{Dispatch: d, Handler: http.HandlerFunc(stressHandler)},
				myriad.Config{Loops: 2, WriteLimit: 16 << 10})
			const clients = 16
			var wg sync.WaitGroup
			for id := range clients {
				wg.Go(func() { stressClient(t, f, id, stressAnswers(t)/2/clients) })
			}
			wg.Wait()
			s := f.Engine.Stats()
			t.Logf("%d takeovers, %d hand-overs", s.Overstays, s.Handoffs)
		})
	}
}

func stressHandler(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
	switch {
	case n%997 == 1:
		time.Sleep(5 * time.Millisecond)
	case n%1499 == 2:
		for end := time.Now().Add(3 * time.Millisecond); time.Now().Before(end); {
		}
	case n%499 == 3:
		time.Sleep(time.Millisecond)
	}
	io.Copy(io.Discard, r.Body)
	if n%2003 == 4 {
		io.WriteString(w, strings.Repeat("y", 100<<10))
	}
	io.WriteString(w, r.Method+r.URL.Path)
}

func stressClient(t *testing.T, f *fixture, id, answers int) {
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	r := bufio.NewReader(c)
	for n := 0; n < answers; {
		var out strings.Builder
		batch := 1 + (n+id)%7
		for i := range batch {
			if (n+i)%3 == 0 {
				fmt.Fprintf(&out, "POST /post/%d/%d HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", id, n+i)
			} else {
				fmt.Fprintf(&out, "GET /get/%d/%d HTTP/1.1\r\nHost: h\r\n\r\n", id, n+i)
			}
		}
		if _, err := io.WriteString(c, out.String()); err != nil {
			t.Error(err)
			return
		}
		for i := range batch {
			want := fmt.Sprintf("GET/get/%d/%d", id, n+i)
			if (n+i)%3 == 0 {
				want = fmt.Sprintf("POST/post/%d/%d", id, n+i)
			}
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Errorf("client %d, answer %d: %v", id, n+i, err)
				return
			}
			got, err := io.ReadAll(resp.Body)
			if err != nil || strings.TrimLeft(string(got), "y") != want {
				t.Errorf("client %d, answer %d: %.60q, %v; want %q", id, n+i, got, err, want)
				return
			}
		}
		n += batch
	}
}
