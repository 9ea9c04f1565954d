package web

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

// pipelined asks for all paths at once, the last with Connection: close.
func pipelined(paths ...string) string {
	var b strings.Builder
	for i, p := range paths {
		end := ""
		if i == len(paths)-1 {
			end = "Connection: close\r\n"
		}
		fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: h\r\n%s\r\n", p, end)
	}
	return b.String()
}

// answers reads whole answers until the connection ends.
func answers(t *testing.T, all string) (bodies []string) {
	t.Helper()
	r := bufio.NewReader(strings.NewReader(all))
	for {
		if _, err := r.Peek(1); err == io.EOF {
			return bodies
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("after %q: %v", bodies, err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			bodies = append(bodies, "cut: "+string(body))
			return bodies
		}
		bodies = append(bodies, string(body))
	}
}

func paths(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint("/", i))
	}
	return all
}

// Requests run at the same time, up to the depth and no further, and are answered in order,
// whichever has ended first.
func TestPipelineDepthRunsTogether(t *testing.T) {
	const depth, n = 4, 23
	var running, most atomic.Int32
	var all sync.WaitGroup
	all.Add(depth)
	f := serve(t, &Server{PipelineDepth: depth, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := running.Add(1)
		defer running.Add(-1)
		for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
		}
		if len(r.URL.Path) == 2 && r.URL.Path < fmt.Sprint("/", depth) {
			all.Done()
			all.Wait() // none of the first can end before they have all begun
		}
		io.WriteString(w, r.URL.Path)
	})})
	if got := answers(t, raw(t, f, pipelined(paths(n)...), false)); fmt.Sprint(got) != fmt.Sprint(paths(n)) {
		t.Errorf("got %q", got)
	}
	if most.Load() != depth {
		t.Errorf("%d ran together, want %d", most.Load(), depth)
	}
}

// eachDepth runs f with chains and with concurrency.
func eachDepth(t *testing.T, f func(t *testing.T, s *Server)) {
	for _, depth := range []int{1, 3, 64} {
		for _, d := range []Dispatch{DispatchPool, DispatchInline, DispatchAuto} {
			t.Run(fmt.Sprint(depth, "/", d), func(t *testing.T) { f(t, &Server{PipelineDepth: depth, Dispatch: d}) })
		}
	}
}

// Whatever the answers in a line are like, each begins where the one before has ended.
func TestPipelinesOfAllKinds(t *testing.T) {
	large := strings.Repeat("x", 300<<10)
	eachDepth(t, func(t *testing.T, s *Server) {
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/large":
				io.WriteString(w, large)
			case "/flushed":
				for _, p := range []string{"a", "b", "c"} {
					io.WriteString(w, p)
					w.(http.Flusher).Flush()
				}
			case "/slow":
				time.Sleep(2 * time.Millisecond)
				io.WriteString(w, "slow")
			case "/file":
				http.ServeFile(w, r, "pipeline_test.go")
			case "/stream":
				st, err := Detached(w)
				if err != nil {
					t.Error(err)
					return
				}
				go func() {
					time.Sleep(time.Millisecond)
					io.WriteString(st, "stream")
					st.Close()
				}()
			default:
				io.WriteString(w, r.URL.Path)
			}
		})
		f := serve(t, s)
		ask := []string{"/1", "/large", "/2", "/flushed", "/slow", "/3", "/stream", "/4", "/file", "/large", "/5",
			"/stream", "/6"}
		got := answers(t, raw(t, f, pipelined(ask...), false))
		if len(got) != len(ask) {
			t.Fatalf("%d answers, want %d", len(got), len(ask))
		}
		for i, path := range ask {
			want := map[string]string{"/large": large, "/flushed": "abc", "/slow": "slow", "/stream": "stream"}[path]
			if want == "" {
				want = path
			}
			if path == "/file" {
				want = got[i]
			}
			if got[i] != want {
				t.Errorf("answer %d, %s: %.40q", i, path, got[i])
			}
		}
		if !strings.HasPrefix(got[8], "package web") {
			t.Errorf("file: %.40q", got[8])
		}
	})
}

// Handlers that run behind a request which takes the connection over have lost it: they neither
// write on it nor end it.
func TestTakeoverInFrontOfRunningHandlers(t *testing.T) {
	for _, how := range []string{"/hijack", "/upgrade"} {
		taken := make(chan struct{})
		var behind sync.WaitGroup
		behind.Add(2)
		s := &shout{make(chan struct{}), make(chan error, 1)}
		f := serve(t, &Server{PipelineDepth: 8, Dispatch: DispatchPool,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/hijack":
					behind.Wait()
					nc, rw, err := w.(http.Hijacker).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					io.CopyN(io.Discard, rw, int64(len(pipelined("/write", "/panic"))))
					s.Opened(nil)
					line, _ := rw.ReadString('\n')
					io.WriteString(nc, switching+strings.ToUpper(line))
					nc.Close()
				case "/upgrade":
					behind.Wait()
					rest := len(pipelined("/write", "/panic"))
					if err := Upgrade(w, []byte(switching), &notReading{rest, s}); err != nil {
						t.Error(err)
					}
				case "/write":
					behind.Done()
					<-taken
					io.WriteString(w, "intruder")
					http.NewResponseController(w).Flush()
				case "/panic":
					behind.Done()
					<-taken
					panic(http.ErrAbortHandler)
				}
			})})
		c := dial(t, f)
		io.WriteString(c, "GET "+how+" HTTP/1.1\r\nHost: h\r\n\r\n"+pipelined("/write", "/panic"))
		receive(t, s.opened)
		within(t, "the line knows that it is lost", func() bool { return f.state.Conns.Load() == 2 })
		close(taken)
		within(t, "both handlers have ended", func() bool { return f.state.Conns.Load() == 0 })
		io.WriteString(c, "hello\n")
		want := switching + "HELLO\n"
		got := make([]byte, len(want))
		if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v", how, got[:n], err)
		}
	}
}

// notReading does not tell its handler of the first n bytes.
type notReading struct {
	n int
	*shout
}

func (d *notReading) Received(c *myriad.Conn, p []byte) {
	ignored := min(d.n, len(p))
	d.n -= ignored
	d.shout.Received(c, p[ignored:])
}

// A client that asks and asks and does not read costs its limits: requests that run, answers that
// are held, a queue.
func TestPipelineWithoutReading(t *testing.T) {
	for _, depth := range []int{1, 16} {
		var began atomic.Int64
		f := serve(t, &Server{PipelineDepth: depth,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				began.Add(1)
				w.Write(make([]byte, 8<<10))
			})})
		before := takenNow().heap
		c := dial(t, f)
		c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond)) // until the server has taken all it takes
		one := []byte(strings.Repeat("GET / HTTP/1.1\r\nHost: h\r\n\r\n", 1000))
		sent := 0
		for {
			n, err := c.Write(one)
			if sent += n; err != nil {
				break
			}
		}
		// it may be busy with what it has taken
		for deadline := time.Now().Add(hangs); ; time.Sleep(10 * time.Millisecond) {
			grown := takenNow().heap - before
			if grown <= 4<<20 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("depth %d: %d bytes sent, %d requests begun, the heap has grown by %d", depth, sent,
					began.Load(), grown)
			}
		}
		c.Close()
	}
}

// Shutdown answers what has lined up.
func TestShutdownAnswersTheLine(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{1, 4} {
		var once sync.Once
		begun := make(chan struct{})
		goOn := make(chan struct{})
		f := serve(t, &Server{PipelineDepth: depth,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				once.Do(func() { close(begun) })
				<-goOn
				io.WriteString(w, r.URL.Path)
			})})
		c := dial(t, f)
		io.WriteString(c, "GET /0 HTTP/1.1\r\nHost: h\r\n\r\nGET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\n"+
			"Host: h\r\n\r\n")
		receive(t, begun)
		done := make(chan error, 1)
		go func() { done <- f.Shutdown(t.Context()) }()
		for !f.closing.Load() {
			runtime.Gosched()
		}
		close(goOn)
		all, err := io.ReadAll(c)
		if got := answers(t, string(all)); err != nil || fmt.Sprint(got) != "[/0 /1 /2]" {
			t.Errorf("depth %d: got %q, %v", depth, got, err)
		}
		c.Close() // or the server waits for that
		if err := receive(t, done); err != nil {
			t.Error(err)
		}
	}
}

// What was held and is then too large for the engine is not left out: the connection ends there.
func TestHeldAnswerTooLarge(t *testing.T) {
	var written sync.WaitGroup
	written.Add(2)
	f := serveOn(t, &Server{PipelineDepth: 8, Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/first" {
				written.Wait()
				return
			}
			defer written.Done()
			times := 1
			if r.URL.Path == "/large" {
				times = 1000
			}
			w.Write([]byte(strings.Repeat(r.URL.Path, times)))
			http.NewResponseController(w).Flush()
		})}, myriad.Config{Loops: 1, MaxWrite: 4 << 10})
	c := dial(t, f)
	io.WriteString(c, pipelined("/first", "/large", "/last"))
	all, _ := io.ReadAll(c)
	if strings.Contains(string(all), "/la") {
		t.Errorf("behind an answer that could not be sent came %.80q", all)
	}
}
