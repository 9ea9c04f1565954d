package web

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/leaktest"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// An attack is what a hostile client does on one connection until stop is closed, or until it has
// no connection any more.
type attack struct {
	name string
	do   func(c *net.TCPConn, stop <-chan struct{})
}

// fallSilent says hello and then nothing, and reads nothing.
func fallSilent(hello string) func(*net.TCPConn, <-chan struct{}) {
	return func(c *net.TCPConn, stop <-chan struct{}) {
		io.WriteString(c, hello) // as much as is taken before the deadline
		<-stop
	}
}

// trickle says hello, and then more of it, a piece at a time.
func trickle(hello, piece string) func(*net.TCPConn, <-chan struct{}) {
	return func(c *net.TCPConn, stop <-chan struct{}) {
		io.WriteString(c, hello)
		for each := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-stop:
				each.Stop()
				return
			case <-each.C:
				if _, err := io.WriteString(c, piece); err != nil {
					each.Stop()
					<-stop
					return
				}
			}
		}
	}
}

// reset sends and then breaks the connection, as soon as at least wait bytes have come back. A
// client that was held up until after the deadline, and has sent nothing, gets nothing.
func reset(sent string, wait int64) func(*net.TCPConn, <-chan struct{}) {
	return func(c *net.TCPConn, _ <-chan struct{}) {
		if _, err := io.WriteString(c, sent); err == nil {
			io.CopyN(io.Discard, c, wait)
		}
		c.SetLinger(0)
	}
}

const hostileLarge = 1 << 20

// attacks are all that one connection can do to a server that has only its defaults to protect it.
var attacks = []attack{
	{"silence", fallSilent("")},
	{"a head that stops", fallSilent("GET / HTTP/1.1\r\nHo")},
	{"a slow head", trickle("GET / HTTP/1.1\r\nHost: h\r\n", "X")},
	{"a slow head of many fields", trickle("GET / HTTP/1.1\r\nHost: h\r\n", "A: b\r\n")},
	{"a body that stops", fallSilent("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nx")},
	{"a slow body", trickle("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n", "x")},
	{"slow chunks", trickle("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n")},
	{"a slow trailer", trickle("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "A: b\r\n")},
	{"a slow body nobody wants", trickle("POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n", "x")},
	{"an answer that is not read", fallSilent("GET /large HTTP/1.1\r\nHost: h\r\n\r\n")},
	{"pipelining without reading", fallSilent(strings.Repeat("GET /large HTTP/1.1\r\nHost: h\r\n\r\n", 200))},
	{"a flood of requests without reading",
		fallSilent(strings.Repeat("GET /?"+strings.Repeat("x", 100)+" HTTP/1.1\r\nHost: h\r\n\r\n", 500))},
	{"uploads without reading",
		fallSilent(strings.Repeat("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4096\r\n\r\n"+strings.Repeat("x",
			4096), 200))},
	{"garbage", fallSilent(strings.Repeat("\x00\xffgarbage\r\n", 10_000))},
	{"a head without end", fallSilent("GET / HTTP/1.1\r\nHost: h\r\n" +
		strings.Repeat("A: "+strings.Repeat("x", 8000)+"\r\n", 300))},
	{"empty lines without end", fallSilent(strings.Repeat("\r\n", 100_000))},
	{"chunk extensions without end",
		fallSilent("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" +
			strings.Repeat("1;a="+strings.Repeat("x", 1000)+"\r\nx\r\n", 100))},
	{"reset at once", reset("", 0)},
	{"reset in a head", reset("GET / HTTP/1.1\r\nHo", 0)},
	{"reset in a body", reset("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nx", 0)},
	{"reset before the answer", reset("GET /large HTTP/1.1\r\nHost: h\r\n\r\n", 0)},
	{"reset in the answer", reset("GET /large HTTP/1.1\r\nHost: h\r\n\r\n", 1000)},
	{"reset in a pipeline", reset(strings.Repeat("GET /large HTTP/1.1\r\nHost: h\r\n\r\n", 20), 1000)},
}

// hostileHandler answers what the attacks ask for.
func hostileHandler() http.Handler {
	large := make([]byte, hostileLarge)
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, "read ", n)
	})
	mux.HandleFunc("/unread", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "not read") })
	mux.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) { w.Write(large) })
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	return mux
}

// A healthy is clients that behave, while others do not: some keep their connection, some take a
// new one for each request.
type healthy struct {
	t    *testing.T
	f    *fixture
	done atomic.Int64
	asks chan struct{} // one for each request
	wg   sync.WaitGroup
}

func beHealthy(t *testing.T, f *fixture) *healthy {
	h := &healthy{t: t, f: f, asks: make(chan struct{}, 1000)}
	for i := range 4 {
		h.wg.Go(func() { h.run(i%2 == 0, i) })
	}
	return h
}

func (h *healthy) run(keep bool, i int) {
	tr := &http.Transport{DisableKeepAlives: !keep}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr, Timeout: 60 * time.Second}
	body := strings.Repeat("b", 1000*i)
	for range h.asks {
		r, err := c.Post(h.f.url("/"), "text/plain", strings.NewReader(body))
		if err != nil {
			h.t.Errorf("a healthy client: %v", err)
			return
		}
		got, err := io.ReadAll(r.Body)
		r.Body.Close()
		if want := fmt.Sprint("read ", len(body)); err != nil || r.StatusCode != 200 || string(got) != want {
			h.t.Errorf("a healthy client: %s, %q, %v; want %q", r.Status, got, err, want)
			return
		}
		h.done.Add(1)
	}
}

// more asks so many more times, and waits for the answers.
func (h *healthy) more(n int) {
	target := h.done.Load() + int64(n)
	for range n {
		h.asks <- struct{}{}
	}
	for h.done.Load() < target && !h.t.Failed() {
		time.Sleep(time.Millisecond)
	}
}

func (h *healthy) end() { close(h.asks); h.wg.Wait() }

// attackers is how many of a kind attack at once: n, or a quarter of them under the race detector,
// which looks for other things than what they leave.
func attackers(n int) int {
	if raceEnabled {
		return n / 4
	}
	return n
}

// taken is what a process holds.
type taken struct {
	heap, stacks int64
	goroutines   int
	files        int
}

func takenNow() taken {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what a sync.Pool holds survives the first
	runtime.ReadMemStats(&m)
	return taken{int64(m.HeapAlloc), int64(m.StackInuse), runtime.NumGoroutine(), leaktest.OpenFiles()}
}

// With nothing but its defaults, a server that is attacked in every way at once answers all healthy
// requests, and when the attackers have gone it holds what it held before: memory, descriptors,
// handlers; and goroutines, once it has been shut down.
func TestHostileClientsByDefault(t *testing.T) {
	each := attackers(20)
	for _, d := range []Dispatch{DispatchPool, DispatchInline, DispatchAuto} {
		t.Run(d.String(), func(t *testing.T) {
			first := takenNow()
			f := serve(t, &Server{Handler: hostileHandler(), Dispatch: d, ErrorLog: nil})
			warm := beHealthy(t, f)
			warm.more(500)
			warm.end()
			awaitConns(t, f, 0)
			before := takenNow()

			h := beHealthy(t, f)
			h.more(100)
			stop := make(chan struct{})
			var attackers sync.WaitGroup
			for _, a := range attacks {
				for range each {
					attackers.Go(func() {
						nc, err := net.Dial("tcp", f.addr)
						if err != nil {
							t.Errorf("%s: %v", a.name, err)
							return
						}
						defer nc.Close()
						nc.SetWriteDeadline(time.Now().Add(2 * time.Second))
						a.do(nc.(*net.TCPConn), stop)
					})
				}
				h.more(20)
			}
			h.more(500)
			within(t, "attackers have connections", func() bool { return f.state.Conns.Load() >= int64(each) })
			close(stop)
			attackers.Wait()
			h.more(20)
			h.end()
			awaitConns(t, f, 0)
			awaitHandlers(t, f)
			awaitTaken(t, before, 2<<20)
			f.stop(t, f.Engine)
			deadline := time.Now().Add(hangs)
			for ; runtime.NumGoroutine() > first.goroutines; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%d goroutines before, %d after", first.goroutines, runtime.NumGoroutine())
				}
			}
		})
	}
}

// awaitHandlers waits until none runs any more: one whose connection has been counted out may be
// about to return.
func awaitHandlers(t *testing.T, f *fixture) {
	t.Helper()
	within(t, "no handler runs",
		func() bool { return poolOf(f.state).Stats().Running == 0 && f.state.Tasks.Away() == 0 })
}

// awaitTaken waits until no block is in use, no new descriptor is open, and the heap has grown by
// at most so many bytes.
func awaitTaken(t *testing.T, before taken, most int64) {
	t.Helper()
	for deadline := time.Now().Add(hangs); ; time.Sleep(10 * time.Millisecond) {
		after := takenNow()
		if after.heap-before.heap <= most && after.files <= before.files && buf.InUse() == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes, %d descriptors and %d blocks are left", after.heap-before.heap,
				after.files-before.files, buf.InUse())
		}
	}
}

func awaitConns(t *testing.T, f *fixture, n int64) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); f.state.Conns.Load() > n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are left, want %d", f.state.Conns.Load(), n)
		}
	}
}

// However many handlers wait for slow clients, they leave Server.Workers to the others: here each
// client that sends or reads slowly would have one of eight workers for ever.
func TestSlowClientsLeaveWorkers(t *testing.T) {
	t.Parallel()
	const (
		most  = 8
		large = 12 // so many do not fit what the kernel takes for a client that does not read
	)
	slow := int64(max(attackers(20), most+2))
	for _, policy := range []Overload{OverloadQueue, OverloadRefuse, OverloadPause} {
		t.Run(policy.String(), func(t *testing.T) {
			var within atomic.Int64
			handler := hostileHandler()
			f := serve(t, &Server{Workers: most, Queue: 10_000, Overload: policy,
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					within.Add(1)
					defer within.Add(-1)
					handler.ServeHTTP(w, r)
				})})
			var held []net.Conn
			for i := range slow {
				c := dial(t, f)
				c.SetDeadline(time.Now().Add(2 * time.Minute)) // megabytes are on their way
				c.(*net.TCPConn).SetReadBuffer(64 << 10)
				if i%2 == 0 {
					io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nx")
				} else {
					io.WriteString(c, strings.Repeat("GET /large HTTP/1.1\r\nHost: h\r\n\r\n", large))
				}
				held = append(held, c)
				for within.Load() <= i { // it has got in, although those before still wait
					time.Sleep(time.Millisecond)
				}
			}
			awaitParked(t, f)
			h := beHealthy(t, f)
			h.more(100)
			h.end()
			// a line may be between two answers
			for deadline := time.Now().Add(hangs); within.Load() != slow; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%d handlers wait for %d slow clients", within.Load(), slow)
				}
			}
			for i, c := range held { // a slow client is served to the end
				if i%2 == 0 {
					io.WriteString(c, "123456789")
					mustRead(t, c, 1, "read 10")
				} else {
					mustRead(t, c, large, "")
				}
			}
			for deadline := time.Now().Add(hangs); f.state.Load.N.Load() != 0; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%d handlers count when none runs", f.state.Load.N.Load())
				}
			}
		})
	}
}

// awaitParked waits until no handler counts any more.
func awaitParked(t *testing.T, f *fixture) {
	t.Helper()
	for deadline := time.Now().Add(hangs); f.state.Load.Policy != exchange.OverloadQueue &&
		f.state.Load.N.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d handlers count, although all wait for their clients", f.state.Load.N.Load())
		}
	}
}

// allZero takes what /large answers, and fails at another byte.
type allZero struct{ want [32 << 10]byte }

func (z *allZero) Write(p []byte) (int, error) {
	if !bytes.Equal(p, z.want[:len(p)]) {
		return 0, errors.New("not what was sent")
	}
	return len(p), nil
}

// mustRead reads n answers: want, or what /large answers.
func mustRead(t *testing.T, c net.Conn, n int, want string) {
	t.Helper()
	for r := bufio.NewReader(c); n > 0; n-- {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := new(allZero)
		if want != "" {
			text, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != 200 || string(text) != want {
				t.Fatalf("%s, %q, %v", resp.Status, text, err)
			}
			continue
		}
		n, err := io.Copy(got, resp.Body)
		if err != nil || resp.StatusCode != 200 || n != hostileLarge {
			t.Fatalf("%s, %d bytes, %v", resp.Status, n, err)
		}
	}
}
