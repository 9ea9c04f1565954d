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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/httpscript"
	"github.com/myriad-go/myriad/internal/leaktest"
)

// An attack is what a hostile client does, as testdata says it.
type attack struct {
	name  string
	hello string
	piece string // said again and again
	reset int64  // the client resets when so many bytes have come; -1: it does not
}

// attacksOf reads a file of attacks.
func attacksOf(t *testing.T, file string) (all []attack) {
	for _, c := range casesOf(t, file) {
		a := attack{name: c.Name, reset: -1}
		for _, command := range c.Commands {
			switch command.Verb {
			case "hello":
				a.hello = httpscript.Requests(command.Args)
			case "again":
				n, _ := strconv.Atoi(command.Args[0])
				a.hello += strings.Repeat(httpscript.Requests(command.Args[1:]), n)
			case "piece":
				a.piece = httpscript.Requests(command.Args)
			case "reset":
				a.reset, _ = strconv.ParseInt(command.Args[0], 10, 64)
			default:
				t.Fatalf("%s, %s: no command %q", file, c.Name, command.Verb)
			}
		}
		all = append(all, a)
	}
	return all
}

// do attacks on one connection until stop is closed, or until it has no connection any more.
func (a *attack) do(c *net.TCPConn, stop <-chan struct{}) {
	_, err := io.WriteString(c, a.hello) // as much as is taken before the deadline
	if a.reset >= 0 {
		if err == nil { // a client that was held up, and has sent nothing, gets nothing
			io.CopyN(io.Discard, c, a.reset)
		}
		c.SetLinger(0)
		return
	}
	each := time.NewTicker(20 * time.Millisecond)
	defer each.Stop()
	for {
		select {
		case <-stop:
			return
		case <-each.C:
			if a.piece == "" {
				continue
			}
			if _, err := io.WriteString(c, a.piece); err != nil {
				<-stop
				return
			}
		}
	}
}

const hostileLarge = 1 << 20

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
			for _, a := range attacksOf(t, "attacks.txt") {
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
			for deadline := time.Now().Add(hangs); f.state.Load.Handlers() != 0; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%d handlers count when none runs", f.state.Load.Handlers())
				}
			}
		})
	}
}

// awaitParked waits until no handler counts any more.
func awaitParked(t *testing.T, f *fixture) {
	t.Helper()
	for deadline := time.Now().Add(hangs); f.state.Load.Handlers() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d handlers count, although all wait for their clients", f.state.Load.Handlers())
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

// Each attack by itself, with nothing but the defaults: healthy clients are answered meanwhile, and
// twenty attackers leave less than 13 kB each, no descriptor, no block and no handler. A second
// wave is held against the first, which may leave tables and pools larger.
func TestEachAttackLeavesNothing(t *testing.T) {
	const most = 256 << 10
	each := attackers(20)
	f := serve(t, &Server{Handler: hostileHandler()})
	for _, a := range attacksOf(t, "attacks.txt") {
		clean := t.Run(a.name, func(t *testing.T) {
			wave(t, f, a, each)
			before := takenNow()
			wave(t, f, a, each)
			awaitTaken(t, before, most)
		})
		if !clean {
			return // what one leaves would be found behind all others
		}
	}
	awaitHandlers(t, f)
}

// wave has n clients attack at once, and returns when the last has gone, for the server too.
func wave(t *testing.T, f *fixture, a attack, n int) {
	t.Helper()
	stop := make(chan struct{})
	var attackers sync.WaitGroup
	for range n {
		attackers.Go(func() {
			nc, err := net.Dial("tcp", f.addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			// for clients of which the server takes only a part
			nc.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			a.do(nc.(*net.TCPConn), stop)
		})
	}
	h := beHealthy(t, f)
	h.more(50)
	close(stop)
	attackers.Wait()
	h.more(10)
	h.end()
	awaitConns(t, f, 0)
}

// heldUp is for how long a loop was held up at most. A timer begins with the turn that its loop is
// in, so it may be early by as much.
func heldUp(f *fixture) (longest time.Duration) {
	for _, l := range f.Engine.Stats().Loops {
		longest = max(longest, l.LongestTurn)
	}
	return longest
}

// With timeouts set, every kind of hostile client is let go by them, a healthy one is served
// meanwhile, and nothing is left.
func TestHostileClients(t *testing.T) {
	const each, headTime = 50, 200 * time.Millisecond
	f := serve(t, &Server{ReadHeaderTimeout: headTime, ReadTimeout: 400 * time.Millisecond,
		WriteTimeout: 600 * time.Millisecond, IdleTimeout: 600 * time.Millisecond,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if r.URL.Path == "/large" {
				w.Write(make([]byte, 1<<20))
			}
		})})
	healthy := client(t)
	ask := func() {
		began := time.Now()
		r, err := healthy.Get(f.url("/"))
		// let go as a slow head is
		for late := began; err != nil && time.Since(late) > headTime-heldUp(f) && time.Since(began) < 20*time.Second; {
			late = time.Now()
			r, err = healthy.Get(f.url("/"))
		}
		if mustBody(t, r, err); r.StatusCode != http.StatusOK {
			t.Fatal(r.Status)
		}
	}
	ask()
	before := takenNow()
	var gone atomic.Int32
	var attackers []net.Conn
	attacks := []string{
		"GET / HTTP/1.1\r\nHo", // a slow head
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nx",          // a slow body
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nx", // a slow chunk
		strings.Repeat("GET /large HTTP/1.1\r\nHost: h\r\n\r\n", 20),             // a reader that does not read
		"", // silence
		strings.Repeat("\x00\xffgarbage", 1000),
	}
	for _, attack := range attacks {
		for range each {
			c := dial(t, f)
			attackers = append(attackers, c)
			io.WriteString(c, attack)
			go func() {
				defer gone.Add(1)
				time.Sleep(time.Second) // reading nothing
				r := bufio.NewReader(c)
				for {
					if _, err := r.Discard(1 << 20); err != nil {
						return
					}
				}
			}()
		}
		ask()
	}
	deadline := time.Now().Add(hangs)
	for ; gone.Load() < int32(each*len(attacks)); time.Sleep(10 * time.Millisecond) {
		ask()
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d hostile clients were let go", gone.Load(), each*len(attacks))
		}
	}
	awaitConns(t, f, 1)
	healthy.CloseIdleConnections()
	for _, c := range attackers {
		c.Close()
	}
	awaitTaken(t, before, 2<<20)
}

// A client that pipelines and does not read costs its limits, and little besides: what waits for it
// lies in few blocks, which are full, also when the answers are small and leave one by one. They
// had a block of 512 bytes each.
func TestPipeliningWithoutReadingFillsBlocks(t *testing.T) {
	const (
		// blocks: those of the output queue, the small ones it begins with, what is kept ahead and
		// what is being written
		most = 256/16 + 16
	)
	clients := attackers(20)
	echo := "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4096\r\n\r\n" + strings.Repeat("x", 4096)
	for name, request := range map[string]string{"small answers": get + "\r\n", "echoes": echo} {
		flood := []byte(strings.Repeat(request, 20<<20/len(request)))
		for _, d := range []Dispatch{DispatchPool, DispatchInline, DispatchAuto} {
			t.Run(fmt.Sprint(name, ", ", d), func(t *testing.T) {
				f := prepare(t, &Server{Handler: hostileHandler(), Dispatch: d}, myriad.Config{Loops: 2})
				serveNarrowly(t, f)
				before := buf.InUse()
				for range clients {
					c := dial(t, f)
					c.(*net.TCPConn).SetReadBuffer(4096)
					c.SetWriteDeadline(time.Now().Add(time.Minute))
					go c.Write(flood) // until the server reads no more, and the test ends
				}
				awaitFullQueues(t, f, uint64(clients))
				if n := (buf.InUse() - before) / clients; n > most {
					t.Errorf("what waits for a client lies in %d blocks, want %d at most", n, most)
				}
			})
		}
	}
}

// narrow is a listener whose connections have a small buffer for what they send: then few answers
// fill it, and those behind them the queue of the server.
type narrow struct{ net.Listener }

func (l narrow) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(16 << 10)
	}
	return c, err
}

func serveNarrowly(t *testing.T, f *fixture) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = ln.Addr().String()
	done := make(chan error, 1)
	go func() { done <- f.Serve(narrow{ln}) }()
	t.Cleanup(func() {
		f.Close()
		if err := <-done; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
}

// awaitFullQueues waits until so many writes have found their queue full, for as long as the server
// goes on answering: when the kernel takes no more, the queues still grow.
func awaitFullQueues(t *testing.T, f *fixture, n uint64) {
	t.Helper()
	var answered uint64
	for end := time.Now().Add(hangs); ; time.Sleep(time.Millisecond) {
		st := f.Engine.Stats()
		if st.Full >= n {
			return
		}
		if now := st.BytesOut + uint64(st.Queued); now != answered {
			answered, end = now, time.Now().Add(hangs)
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d queues are full, and nothing more is answered", st.Full, n)
		}
	}
}
