package websocket

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/leaktest"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/workers"
)

// pulled is a server's connection that is read by the test, and its peer.
func pulled(t *testing.T, o *Options) (*Conn, *rawPeer) {
	t.Helper()
	e := startEngine(t, myriad.Config{Loops: 1})
	conns := make(chan *Conn, 1)
	o.Pull, o.Workers, o.OnOpen = true, startPool(t), func(c *Conn) { conns <- c }
	p := dialRaw(t, listen(t, e, Handler(o))).open()
	return <-conns, p
}

func wantMessage(t *testing.T, c *Conn, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	op, p, err := c.Read(ctx)
	if err != nil || describe(op, false, p) != want {
		t.Fatalf("Read: %v %.80q, %v, want %.80q", op, p, err, want)
	}
}

func TestReadWaits(t *testing.T) {
	c, p := pulled(t, &Options{})
	read := make(chan string)
	go func() {
		for range 3 {
			op, b, err := c.Read(context.Background())
			read <- fmt.Sprint(describe(op, false, b), err)
		}
	}()
	for _, text := range []string{"one", "", "three"} {
		p.write(clientFrame(true, OpText, text))
		if got := <-read; got != line(OpText, text)+"<nil>" {
			t.Errorf("read %q", got)
		}
	}
	p.write(clientFrame(true, OpText, "last") + clientFrame(true, OpClose, closeWith(1000, "done")))
	wantMessage(t, c, line(OpText, "last"))
	if err := c.Write(OpText, []byte("answer to the last")); err != nil {
		t.Errorf("the peer's close frame has been answered before its message was: %v", err)
	}
	for range 2 {
		if _, _, err := c.Read(context.Background()); CloseStatus(err) != StatusNormalClosure {
			t.Errorf("Read at the end: %v", err)
		}
	}
	p.want(line(OpText, "answer to the last"), line(OpClose, closeWith(1000, "")))
}

func TestReadEndsWithItsContext(t *testing.T) {
	c, p := pulled(t, &Options{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		_, _, err := c.Read(ctx)
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	p.write(clientFrame(true, OpText, "still there"))
	wantMessage(t, c, line(OpText, "still there"))
	go func() {
		_, _, err := c.Read(context.Background())
		ended <- err
	}()
	c.Abort(nil)
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// A peer whose messages are not read is not read either: it costs its limit, and its messages are
// all there in the end.
func TestReadHoldsThePeerUp(t *testing.T) {
	t.Parallel()
	const n = 400
	c, p := pulled(t, &Options{PingInterval: quiet})
	message := strings.Repeat("x", 32<<10)
	sent := make(chan error, 1)
	progress := make(chan int, n)
	go func() {
		for i := range n {
			_ = p.SetDeadline(time.Now().Add(hangs)) // each has so much time, however long those before have waited
			if _, err := io.WriteString(p.Conn, clientFrame(true, OpBinary, message)); err != nil {
				sent <- err
				return
			}
			progress <- i
		}
		sent <- nil
	}()
	last := -1
	for stalled := false; !stalled; {
		select {
		case last = <-progress:
		case <-time.After(300 * time.Millisecond):
			stalled = true
		}
	}
	if last == n-1 {
		t.Error("the peer was never held up")
	}
	c.mu.Lock()
	held := c.cold.reads.bytes
	c.mu.Unlock()
	if held > maxInboxBytes+len(message) {
		t.Errorf("%d bytes wait", held)
	}
	for range n {
		wantMessage(t, c, line(OpBinary, message))
	}
	noError(t, <-sent)
}

// A program that does not read does not delay the end of the connection: the close frame is
// answered when its time is over.
func TestCloseIsAnsweredUnread(t *testing.T) {
	c, p := pulled(t, &Options{CloseTimeout: 50 * time.Millisecond})
	p.write(clientFrame(true, OpText, "unread") + clientFrame(true, OpClose, closeWith(1001, "")))
	p.want(line(OpClose, closeWith(1001, "")))
	wantMessage(t, c, line(OpText, "unread"))
	if _, _, err := c.Read(context.Background()); CloseStatus(err) != StatusGoingAway {
		t.Error(err)
	}
}

func TestReadRefuses(t *testing.T) {
	if _, err := (&Options{Pull: true, OnMessage: echoBack}).settings(); err == nil {
		t.Error("Pull and OnMessage were taken")
	}
	e := startEngine(t, myriad.Config{Loops: 1})
	said := make(chan error, 3)
	o := &Options{Dispatch: web.DispatchInline, OnMessage: func(c *Conn, _ Op, _ []byte) {
		_, _, err := c.Read(context.Background())
		said <- err
	}}
	p := dialRaw(t, listen(t, e, Handler(o))).open()
	p.write(clientFrame(true, OpText, "x"))
	if err := <-said; !errors.Is(err, errNotPulled) {
		t.Errorf("Read without Pull: %v", err)
	}
	conns := make(chan *Conn, 1)
	o = &Options{Pull: true, Workers: startPool(t), OnOpen: func(c *Conn) { conns <- c }}
	dialRaw(t, listen(t, e, Handler(o))).open()
	c := <-conns
	_ = e.Loops()[0].Do(func() {
		_, _, err := c.Read(context.Background())
		said <- err
	})
	if err := <-said; !errors.Is(err, myriad.ErrOnLoop) {
		t.Errorf("Read on a loop: %v", err)
	}
}

// netPipe is a server's and a client's NetConn with each other.
func netPipe(t *testing.T, e *myriad.Engine, k Compression) (c1, c2 net.Conn, stop func(), err error) {
	conns := make(chan *Conn, 1)
	pool := startPool(t)
	o := &Options{Pull: true, Workers: pool, Compression: k, OnOpen: func(c *Conn) { conns <- c }}
	ln, err := e.Listen("tcp", "127.0.0.1:0", Handler(o))
	if err != nil {
		return nil, nil, nil, err
	}
	d := &DialOptions{}
	d.Engine, d.Pull, d.Workers, d.Compression = e, true, pool, k
	c, _, err := Dial(context.Background(), "ws://"+ln.Addr().String(), d)
	if err != nil {
		return nil, nil, nil, err
	}
	server := <-conns
	c1, c2 = NetConn(c, OpBinary), NetConn(server, OpBinary)
	return c1, c2, func() {
		c.Abort(nil)
		server.Abort(nil)
		_, _, _ = c1.Close(), c2.Close(), ln.Close() // what has not been read of a message is given back
	}, nil
}

// The suite of x/net for everything that calls itself a net.Conn.
func TestNetConn(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]Compression{"plain": {}, "compressed": {Enabled: true, Threshold: -1,
		WriteWindowBits: 12, ReadWindowBits: 15}} {
		t.Run(name, func(t *testing.T) {
			e := startEngine(t, myriad.Config{})
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) { return netPipe(t, e, k) })
		})
	}
}

func TestNetConnEnds(t *testing.T) {
	e := startEngine(t, myriad.Config{})
	a, b, stop, err := netPipe(t, e, Compression{})
	must(t, err)
	defer stop()
	go func() {
		_, _ = a.Write(bytes.Repeat([]byte("data "), 1000))
		_ = a.Close()
	}()
	if got, err := io.ReadAll(b); err != nil || len(got) != 5000 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := a.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Write behind Close: %v", err)
	}
}

// A callback that waits delays its own connection, within limits, and no other; then everything
// comes in order.
func TestSlowCallbacksAreBounded(t *testing.T) {
	for _, c := range []struct {
		name    string
		payload string
		n       int
	}{{"many", "", 5000}, {"large", strings.Repeat("x", 50<<10), 40}} {
		t.Run(c.name, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, d web.Dispatch) {
				var gate driver.Parker
				slow, seen := true, 0
				h := hold(t, &Options{Dispatch: d, OnMessage: func(_ *Conn, _ Op, p []byte) {
					if slow {
						gate.Park()
					}
					if n := fmt.Sprint(seen); !strings.HasPrefix(string(p), n+" ") {
						t.Errorf("message %d begins with %.10q", seen, p)
					}
					seen++
				}}, myriad.Config{})
				gate = h.NewParker()
				for i := range c.n {
					h.client.send(OpText, fmt.Sprint(i, " ", c.payload))
				}
				h.RunFor(10 * time.Minute) // it is not taken for dead because it is not read
				if h.ended != nil || seen != 0 {
					t.Fatalf("after a while %d messages were seen, ended with %v", seen, h.ended)
				}
				waiting, size := h.waiting()
				if waiting > maxInbox || size > maxInboxBytes+len(c.payload)+10 {
					t.Errorf("%d messages of %d bytes wait", waiting, size)
				}
				slow = false
				gate.Unpark()
				h.RunFor(time.Second)
				if seen != c.n {
					t.Errorf("%d messages of %d", seen, c.n)
				}
				if h.conn.callbacks != nil {
					t.Error("an idle connection keeps its inbox")
				}
				h.finish()
			})
		})
	}
}

func (h *held) waiting() (messages, size int) {
	h.conn.mu.Lock()
	defer h.conn.mu.Unlock()
	b := h.conn.callbacks
	return b.len(), b.bytes
}

// However a connection ends while its callbacks are behind, what was taken is still delivered, and
// OnClose comes last.
func TestEndBehindSlowCallbacks(t *testing.T) {
	for name, end := range map[string]func(h *held){
		"close":    func(h *held) { h.client.send(OpClose, closeWith(1000, "")) },
		"closefin": func(h *held) { h.client.send(OpClose, closeWith(1000, "")); h.client.CloseWrite() },
		"fin":      func(h *held) { h.client.CloseWrite() },
		"reset":    func(h *held) { h.client.Reset() },
		"closenow": func(h *held) { h.conn.Abort(nil) },
		"ours":     func(h *held) { _ = h.conn.Close(1001, "") },
		"shutdown": func(h *held) {},
	} {
		for _, n := range []int{5, 1000} {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				eachQueue(t, func(t *testing.T, d web.Dispatch) {
					var gate driver.Parker
					seen := 0
					h := hold(t, &Options{Dispatch: d, CloseTimeout: time.Second, OnMessage: func(*Conn, Op, []byte) {
						if seen == 0 {
							gate.Park()
						}
						seen++
					}}, myriad.Config{})
					gate = h.NewParker()
					for i := range n {
						h.client.send(OpText, fmt.Sprint(i))
					}
					h.Settle()
					end(h)
					h.RunFor(3 * time.Second)
					if h.ended != nil {
						t.Fatal("OnClose before OnMessage has returned")
					}
					gate.Unpark()
					h.RunFor(10 * time.Second)
					if (name == "close" || name == "closefin" || name == "fin") && seen != n {
						t.Errorf("%d messages of %d were delivered", seen, n)
					}
					if got := h.client.lines(t); strings.HasPrefix(name, "close") && name != "closenow" &&
						!slices.Equal(got, lines(line(OpClose, closeWith(1000, "")))) {
						t.Errorf("the client read %q", got)
					}
					if name != "shutdown" && h.ended == nil {
						t.Error("no OnClose")
					}
					h.stop()
				})
			})
		}
	}
}

func TestPanicClosesOnlyItsConnection(t *testing.T) {
	for _, fail := range map[string]func(){"panic": func() { panic("oops") }, "goexit": runtime.Goexit} {
		eachWay(t, func(t *testing.T, d web.Dispatch) {
			h := hold(t, &Options{Dispatch: d, PingInterval: quiet, OnMessage: func(c *Conn, op Op, p []byte) {
				if string(p) == "fail" {
					fail()
				}
				echoBack(c, op, p)
			}}, myriad.Config{})
			first, firstConn := h.client, h.conn
			other := h.world.client(sampleRequest)
			h.Settle()
			h.conn = firstConn
			first.Write([]byte(clientFrame(true, OpText, "fail") + clientFrame(true, OpText, "not heard")))
			h.Settle()
			other.send(OpText, "still there")
			h.Settle()
			h.client = other
			h.wantRead(`text "still there"`)
			h.client = first
			h.wantRead(line(OpClose, closeWith(1011, "internal error")))
			first.send(OpClose, closeWith(1011, ""))
			h.RunFor(time.Minute)
			h.wantEnd(1011, nil)
			logged := slices.IndexFunc(h.heard.all(),
				func(s string) bool { return strings.Contains(s, "panic in a callback") })
			if logged < 0 || slices.Contains(h.heard.all(), `text "not heard"`) {
				t.Errorf("heard and logged %q", h.heard.all())
			}
			h.ended = nil
			other.Close()
			h.Run()
			h.stop()
		})
	}
}

func TestPanicInOnOpenAndOnClose(t *testing.T) {
	eachWay(t, func(t *testing.T, d web.Dispatch) {
		l := new(logLines)
		o := &Options{Dispatch: d, PingInterval: quiet, Logger: testLogger(l),
			OnOpen:  func(*Conn) { panic("in OnOpen") },
			OnClose: func(*Conn, error) { l.add("ended"); panic("in OnClose") }}
		w := newWorld(t, 1, sim.Calm(), myriad.Config{}, handlerOf(t, o))
		c := w.client(sampleRequest)
		w.Run()
		if got, want := c.lines(t), lines(line(OpClose, closeWith(1011, "internal error"))); !slices.Equal(got, want) {
			t.Errorf("the client read %q, want %q", got, want)
		}
		c.Close()
		w.Run()
		if got := l.all(); len(got) != 3 || !strings.Contains(got[0], "in OnOpen") || got[1] != "ended" ||
			!strings.Contains(got[2], "in OnClose") {
			t.Errorf("logged %q", got)
		}
		w.stop()
	})
}

// More connections with work than the executor has room for: all of it is done nevertheless.
func TestCrewWaitsForRoom(t *testing.T) {
	faults := sim.Calm()
	faults.Workers, faults.Queue, faults.Backlog = 2, 3, 1000
	o, heard := recorded(&Options{Dispatch: web.DispatchPool, PingInterval: quiet, OnMessage: echoBack})
	w := newWorld(t, 3, faults, myriad.Config{}, Handler(o))
	var clients []*client
	for range 100 {
		clients = append(clients, w.client(sampleRequest+clientFrame(true, OpText, "1")+clientFrame(true, OpText, "2")))
	}
	w.Run()
	for i, c := range clients {
		if got, want := c.lines(t), lines(`text "1"`, `text "2"`); !slices.Equal(got, want) {
			t.Errorf("client %d read %q", i, got)
		}
		c.Close()
	}
	w.Run()
	if got := len(heard.all()); got != 400 {
		t.Errorf("%d callbacks, want 4 for each of 100 connections", got)
	}
	w.stop()
}

// A pool that was closed under our feet: callbacks still come, in order.
func TestCrewOutlivesItsPool(t *testing.T) {
	pool := workers.New(workers.Config{})
	must(t, pool.Close(context.Background()))
	e := startEngine(t, myriad.Config{Loops: 1})
	heard := make(chan string, 100)
	o := &Options{Workers: pool, Dispatch: web.DispatchPool,
		OnOpen:    func(*Conn) { heard <- "open" },
		OnMessage: func(_ *Conn, _ Op, p []byte) { heard <- string(p) },
		OnClose:   func(_ *Conn, err error) { heard <- fmt.Sprint(CloseStatus(err)) }}
	p := dialRaw(t, listen(t, e, Handler(o)))
	p.write(sampleRequest + clientFrame(true, OpText, "1") + clientFrame(true, OpText, "2") +
		clientFrame(true, OpClose, closeWith(1000, "")))
	p.closeWrite()
	for _, want := range []string{"open", "1", "2", "1000 (normal closure)"} {
		if got := <-heard; got != want {
			t.Fatalf("heard %q, want %q", got, want)
		}
	}
}

// A counter is a pool that takes so many functions of a batch at most.
type counter struct {
	*workers.Pool
	most int

	mu       sync.Mutex
	together []int // what it was given in each batch
	alone    int   // and besides
}

func (p *counter) TryGo(f func()) bool {
	p.mu.Lock()
	p.alone++
	p.mu.Unlock()
	return p.Pool.TryGo(f)
}

func (p *counter) TryGoAll(fs []func()) int {
	p.mu.Lock()
	p.together = append(p.together, len(fs))
	p.mu.Unlock()
	return p.Pool.TryGoAll(fs[:min(len(fs), p.most)])
}

// The messages of one turn are brought to the pool together, those of one connection as one; what
// the pool does not take is brought again.
func TestBatchOfATurn(t *testing.T) {
	const conns, perConn = 10, 3
	for _, most := range []int{conns, 4, 0} {
		e := startEngine(t, myriad.Config{Loops: 1})
		var wg sync.WaitGroup
		wg.Add(conns * perConn)
		open := make(chan *Conn, conns)
		o := &Options{Dispatch: web.DispatchPool, OnOpen: func(c *Conn) { open <- c },
			OnMessage: func(*Conn, Op, []byte) { wg.Done() }}
		s, err := o.settings()
		must(t, err)
		pool := &counter{Pool: startPool(t), most: conns}
		s.tasks.UsePool(pool)
		addr := listen(t, e, Handler(o))
		var all []*Conn
		for range conns {
			dialRaw(t, addr).open()
			all = append(all, <-open)
		}
		for _, c := range all { // whose OnOpen has returned
			for waiting := true; waiting; runtime.Gosched() {
				c.mu.Lock()
				waiting = c.callbacks != nil
				c.mu.Unlock()
			}
		}
		before := len(pool.together)
		pool.most = most
		turn := func() {
			for range perConn {
				for _, c := range all {
					c.message(message{op: OpText, payload: []byte("x")})
				}
			}
		}
		must(t, e.Loops()[0].Do(turn))
		wg.Wait()
		pool.mu.Lock()
		if got := pool.together[before:]; !slices.Equal(got, []int{conns}) || pool.alone != conns-most {
			t.Errorf("a pool that takes %d was given batches of %v and %d alone, want %d and %d", most, got, pool.alone,
				conns, conns-most)
		}
		pool.mu.Unlock()
	}
}

// autoPair dials twice and returns a function that sends on each connection, and what each
// receives.
func autoPair(t *testing.T, onMessage func(c *Conn, op Op, p []byte)) (e *myriad.Engine, say [2]func(string),
	hear [2]chan string) {
	e = startEngine(t, myriad.Config{Loops: 1})
	addr := listen(t, e, Handler(&Options{Dispatch: web.DispatchAuto, OnMessage: onMessage, Workers: startPool(t)}))
	clients := startEngine(t, myriad.Config{Loops: 1})
	for i := range say {
		hear[i] = make(chan string, 1024)
		c, _, err := Dial(context.Background(), "ws://"+addr, &DialOptions{Options: Options{
			Engine: clients, Dispatch: web.DispatchInline,
			OnMessage: func(_ *Conn, _ Op, p []byte) { hear[i] <- string(p) },
		}})
		must(t, err)
		say[i] = func(s string) {
			noError(t, c.Write(OpText, []byte(s)))
		}
	}
	return e, say, hear
}

func heard(t *testing.T, ch chan string) string {
	t.Helper()
	select {
	case s := <-ch:
		return s
	case <-time.After(hangs):
		t.Fatal("no answer")
	}
	return ""
}

// runsInline reports whether its caller runs as an inline task. It takes a few hundredths of the
// time in which a callback is quick, and the text of the stack a quarter under the race detector.
func runsInline() bool {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "(*callbacks).runTask") {
			return true
		}
		if !more {
			return false
		}
	}
}

// Quick callbacks come to the loop, one that blocks there costs its neighbours a moment, and the
// order on each connection stays.
func TestAutoCallbacks(t *testing.T) {
	release := make(chan struct{})
	var onLoop atomic.Int64
	e, say, hear := autoPair(t, func(c *Conn, op Op, p []byte) {
		if runsInline() {
			onLoop.Add(1)
		}
		if string(p) == "block" {
			<-release
		}
		_ = c.Write(op, p)
	})
	if e.Loops()[0].ThreadBound() {
		t.Skip("all callbacks run on the pool")
	}
	// The last callback on the loop may have been slow as well, on a busy machine, and what comes
	// next is then for the pool.
	for tries := 0; e.Stats().Overstays == 0; tries++ {
		if tries == 50 {
			t.Fatal("no takeover was counted")
		}
		for n, before := 0, onLoop.Load(); onLoop.Load() < before+100; n++ {
			if n > 50_000 {
				t.Fatal("never on the loop")
			}
			say[0]("learn")
			heard(t, hear[0])
		}
		blockOnce(t, say, hear, release)
	}
}

// blockOnce has a callback of the first connection block until the second has been answered a
// hundred times.
func blockOnce(t *testing.T, say [2]func(string), hear [2]chan string, release chan<- struct{}) {
	t.Helper()
	say[0]("block")
	for i := range 50 {
		say[0](fmt.Sprint(i))
	}
	for i := range 100 {
		say[1](fmt.Sprint(i))
		if got := heard(t, hear[1]); got != fmt.Sprint(i) {
			t.Fatalf("neighbour: %q, want %d", got, i)
		}
	}
	release <- struct{}{}
	if got := heard(t, hear[0]); got != "block" {
		t.Fatalf("got %q", got)
	}
	for i := range 50 {
		if got := heard(t, hear[0]); got != fmt.Sprint(i) {
			t.Fatalf("after the block: %q, want %d", got, i)
		}
	}
}

// A waitingRoom is an engine of one loop whose callbacks run on it, with a peer that does not read
// and one that does not send.
type waitingRoom struct {
	*world
	slow, silent *client
	slowConn     *Conn
	silentConn   *Conn // with Pull
	wait         func(r *waitingRoom, c *Conn) error
	returned     bool
}

func newWaitingRoom(t *testing.T) *waitingRoom {
	t.Helper()
	r := new(waitingRoom)
	o := &Options{Dispatch: quickly, PingInterval: quiet, Overflow: OverflowBlock, WriteLimit: slowLimit}
	o.OnOpen = func(c *Conn) {
		if r.slowConn == nil {
			r.slowConn = c
		}
	}
	o.OnMessage = func(c *Conn, op Op, p []byte) {
		if string(p) != "wait" {
			echoBack(c, op, p)
			return
		}
		noError(t, r.wait(r, c))
		r.returned = true
	}
	r.world = newWorld(t, 1, sim.Calm(), myriad.Config{Loops: 1}, handlerOf(t, o))
	pull := &Options{Pull: true, PingInterval: quiet, OnOpen: func(c *Conn) { r.silentConn = c }}
	ln, err := r.e.Listen("tcp", "127.0.0.1:0", Handler(pull))
	must(t, err)
	r.slow = r.client(sampleRequest)
	r.silent = &client{r.Dial(ln.Addr())}
	r.silent.Write([]byte(sampleRequest))
	r.Settle()
	r.slow.StopReading()
	return r
}

// writeMuch writes more than the peer that does not read has room for.
func writeMuch(write func(op Op, p []byte) error) error {
	for i := range 400 {
		if err := write(OpText, numbered(i)); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return nil
}

// A callback on the loop that calls a waiting function hands the loop over before. Its neighbours
// do not wait, and the monitor need not take the loop away from it. It makes no difference whether
// it waits for its own connection.
func TestAutoHandsOver(t *testing.T) {
	for name, wait := range map[string]func(r *waitingRoom, c *Conn) error{
		"own Write":    func(_ *waitingRoom, c *Conn) error { return writeMuch(c.Write) },
		"Write":        func(r *waitingRoom, _ *Conn) error { return writeMuch(r.slowConn.Write) },
		"WriteContext": func(r *waitingRoom, _ *Conn) error { return writeMuch(r.writeContext) },
		"Read": func(r *waitingRoom, _ *Conn) error {
			_, _, err := r.silentConn.Read(context.Background())
			return err
		},
		"NetConn": func(r *waitingRoom, _ *Conn) error {
			_, err := NetConn(r.silentConn, OpText).Read(make([]byte, 10))
			return err
		},
		"Dial": func(r *waitingRoom, _ *Conn) error {
			c, _, err := Dial(context.Background(), "ws://"+r.ln.Addr().String(),
				&DialOptions{Options: Options{Engine: r.e, PingInterval: quiet}, Random: seeded(1)})
			if err == nil {
				c.Abort(nil)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newWaitingRoom(t)
			r.wait = wait
			asks, neighbour := r.client(sampleRequest), r.client(sampleRequest)
			if name == "own Write" {
				asks = r.slow
			}
			r.Settle()
			asks.send(OpText, "wait")
			neighbour.send(OpText, "quick")
			r.Settle()
			if got := neighbour.lines(t); !slices.Equal(got, lines(`text "quick"`)) {
				t.Errorf("the neighbour read %q at once", got)
			}
			if r.returned && name != "Dial" {
				t.Error("the call has not waited")
			}
			if st := r.e.Stats(); st.Handoffs != 1 || st.Overstays != 0 {
				t.Errorf("%d hand-overs and %d takeovers, want 1 and 0", st.Handoffs, st.Overstays)
			}
			r.slow.Resume()
			r.silent.send(OpText, "come")
			asks.send(OpText, "more")
			r.RunFor(time.Second)
			if got := asks.lines(t); !r.returned || len(got) == 0 || got[len(got)-1] != `text "more"` {
				t.Errorf("returned: %v; the one who asked read %.100q", r.returned, got)
			}
			r.stop()
		})
	}
}

func (r *waitingRoom) writeContext(op Op, p []byte) error {
	return r.slowConn.WriteContext(context.Background(), op, p)
}

// A loop that is bound to its thread cannot be handed off: with DispatchInline a Write that would
// wait fails. With DispatchAuto callbacks run on the pool, where it waits.
func TestBoundLoopDoesNotWait(t *testing.T) {
	for d, want := range map[web.Dispatch]error{web.DispatchInline: myriad.ErrOnLoop, quickly: nil} {
		world := sim.Calm()
		world.ThreadBound = true
		written := errors.New("the callback has not returned")
		o := &Options{Dispatch: d, PingInterval: quiet, Overflow: OverflowBlock, WriteLimit: slowLimit,
			OnMessage: func(c *Conn, _ Op, _ []byte) { written = writeMuch(c.Write) }}
		w := newWorld(t, 1, world, myriad.Config{Loops: 1}, handlerOf(t, o))
		c := w.client(sampleRequest)
		c.StopReading()
		c.send(OpText, "go")
		w.Settle()
		if done := written == nil || errors.Is(written, myriad.ErrOnLoop); done != (want != nil) {
			t.Errorf("dispatch %v, the peer does not read: Write: %v", d, written)
		}
		c.Resume()
		w.Settle()
		if !errors.Is(written, want) {
			t.Errorf("dispatch %v: Write: %v, want %v", d, written, want)
		}
		w.stop()
	}
}

// One message in a hundred takes 20 ms, the others nothing, on one loop and in fake time, where
// delays are exact: neighbours of the slow one wait for the monitor twice, and never longer than it
// takes to look twice. Then the callbacks run on the pool, and stay there.
func TestAutoKeepsNeighbours(t *testing.T) {
	const (
		step, steps = 250 * time.Microsecond, 8000
		peers       = 10 // the last one's messages are slow, one in ten of them
		atMost      = 8  // steps: two ticks of the monitor
	)
	var w *world
	o := &Options{Dispatch: quickly, PingInterval: quiet, OnMessage: func(c *Conn, op Op, p []byte) {
		if p[0] == 's' {
			w.NewParker().ParkFor(20 * time.Millisecond)
		}
		echoBack(c, op, p)
	}}
	w = newWorld(t, 1, sim.Calm(), myriad.Config{Loops: 1}, handlerOf(t, o))
	var clients []*client
	var sent [peers][]int    // in which step
	var want [peers][]string // to be read
	for range peers {
		clients = append(clients, w.client(sampleRequest))
	}
	w.Settle()
	frame := len("..") + len("q0000")
	head, waited := len(clients[0].Received()), map[int]int{}
	for at := range steps {
		i := at % peers
		text := fmt.Sprintf("q%04d", at)
		if at%(10*peers) == peers-1 {
			text = fmt.Sprintf("s%04d", at)
		}
		clients[i].send(OpText, text)
		sent[i], want[i] = append(sent[i], at), append(want[i], fmt.Sprintf("text %q", text))
		w.RunFor(step)
		for i, c := range clients[:peers-1] {
			if done := (len(c.Received()) - head) / frame; done < len(sent[i]) {
				waited[at-sent[i][done]]++
			}
		}
	}
	w.RunFor(time.Second)
	for i, c := range clients {
		if got := c.lines(t); !slices.Equal(got, want[i]) {
			t.Errorf("client %d read %d messages of %d, or in another order", i, len(got), len(want[i]))
		}
	}
	for late, n := range waited {
		if late > atMost {
			t.Errorf("a neighbour waited for %v, %d times", time.Duration(late)*step, n)
		}
	}
	if n := w.e.Stats().Overstays; n != 2 {
		t.Errorf("%d takeovers, want 2", n)
	}
	w.stop()
}

// Labels of runtime/pprof that a callback has set are gone when the next one runs on its goroutine.
func TestLabelsEndWithTheirCallback(t *testing.T) {
	for _, d := range []web.Dispatch{web.DispatchInline, web.DispatchPool} {
		t.Run(d.String(), func(t *testing.T) {
			name := "own-" + t.Name()
			count, stop := leaktest.CountLabelled(name)
			defer stop()
			pool := workers.New(workers.Config{Workers: 1})
			defer pool.Close(context.Background())
			addr := listen(t, startEngine(t, myriad.Config{Loops: 1}),
				Handler(&Options{Dispatch: d, Workers: pool, OnMessage: func(c *Conn, _ Op, p []byte) {
					if string(p) == "set" {
						pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(name, "yes")))
					}
					c.Write(OpText, fmt.Append(nil, count()))
				}}))
			client := startEngine(t, myriad.Config{Loops: 1})
			said := make(chan string, 1)
			for range 2 {
				c, _, err := Dial(context.Background(), "ws://"+addr, &DialOptions{Options: Options{
					Engine: client, Dispatch: web.DispatchInline, OnMessage: func(_ *Conn, _ Op, p []byte) {
						said <- string(p)
					},
				}})
				must(t, err)
				for i, text := range []string{"look", "set", "look", "set"} {
					c.Write(OpText, []byte(text))
					if got, want := heard(t, said), fmt.Sprint(i%2); got != want {
						t.Errorf("message %d: %s labelled goroutines, want %s", i, got, want)
					}
				}
			}
		})
	}
}

const (
	// slowPeersEnv is how many peers there are to be, instead of 500.
	slowPeersEnv = "MYRIAD_SLOW_PEERS"
	// slowPeersAtEnv makes a process of the test that of the peers: it has the server's address.
	slowPeersAtEnv = "MYRIAD_SLOW_PEERS_AT"
	slowText       = "xxxxxxxxxxxxxxxxxxxx"
)

// Peers that send a byte at a time, and never the last one of their message, occupy no worker. A
// pool of one is free for peers that send whole messages, and so is the loop, where quick callbacks
// run on it. They are in a process of their own, so that ten thousand of them need no more than
// 20,000 descriptors in any:
//
//	MYRIAD_SLOW_PEERS=10000 go test -v -run ByteByByte ./websocket
func TestByteByBytePeersOccupyNoWorker(t *testing.T) {
	n := 500
	if text := os.Getenv(slowPeersEnv); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	if addr := os.Getenv(slowPeersAtEnv); addr != "" {
		beSlowPeers(t, addr, n)
		return
	}
	t.Run("pool", func(t *testing.T) { testByteByByte(t, n, web.DispatchPool) })
	t.Run("quickly", func(t *testing.T) { testByteByByte(t, n, quickly) })
}

func testByteByByte(t *testing.T, n int, d web.Dispatch) {
	e := startEngine(t, myriad.Config{Loops: 1})
	pool := workers.New(workers.Config{Workers: 1})
	t.Cleanup(func() { _ = pool.Close(t.Context()) })
	o := &Options{Workers: pool, Dispatch: d, PingInterval: quiet, OnMessage: echoBack,
		Compression: Compression{Enabled: true}}
	addr := listen(t, e, handlerOf(t, o))
	slow := startSlowPeers(t, addr, n)
	slow.want("open")
	healthy := dialRaw(t, addr).open()
	tasks, spoken := pool.Stats().Done, uint64(0)
	wire := slowWire()
	for i := range len(wire) - 1 {
		slow.order("byte")
		if i%20 == 0 {
			_ = healthy.SetDeadline(time.Now().Add(hangs))
			healthy.write(clientFrame(true, OpText, "quick"))
			healthy.want(line(OpText, "quick"))
			spoken++
		}
		slow.want("sent")
	}
	slow.want("heard pongs")
	if held := e.Stats().Conns; held != n+1 {
		t.Errorf("the engine holds %d connections of %d", held, n+1)
	}
	least, most := spoken, spoken
	if d == quickly && !e.Loops()[0].ThreadBound() {
		if least = 0; e.Stats().Overstays == 0 { // or a callback was held up, and the next may run on the pool
			most = 0
		}
	}
	for end := time.Now().Add(hangs); pool.Stats().Done-tasks < least && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // a task is done a moment after its answer is sent
	}
	if got := pool.Stats().Done - tasks; got < least || got > most {
		t.Errorf("%d tasks of the pool ran for %d messages of the one who completed any, want %d to %d", got, spoken,
			least, most)
	}
	slow.order("byte")
	slow.want("sent")
	slow.want("heard echoes")
}

// slowWire is a message in two frames, with a ping between them.
func slowWire() string {
	return clientFrame(false, OpText, slowText) + clientFrame(true, OpPing, "?") +
		clientFrame(true, opContinuation, slowText)
}

// beSlowPeers is the other process: each line of its input has all peers send their next byte.
func beSlowPeers(t *testing.T, addr string, n int) {
	var peers []*rawPeer
	for range n {
		peers = append(peers, dialRaw(t, addr).open())
	}
	fmt.Println("open")
	wire, orders := slowWire(), bufio.NewScanner(os.Stdin)
	for i := range len(wire) {
		if !orders.Scan() {
			t.Fatalf("no more orders behind %d: %v", i, orders.Err())
		}
		for _, p := range peers {
			_ = p.SetDeadline(time.Now().Add(hangs))
			p.write(wire[i : i+1])
		}
		fmt.Println("sent")
		switch i {
		case len(wire) - 2:
			hear(peers, `pong "?"`, "pongs")
		case len(wire) - 1:
			hear(peers, line(OpText, slowText+slowText), "echoes")
		}
	}
}

func hear(peers []*rawPeer, frame, name string) {
	for _, p := range peers {
		p.want(frame)
	}
	fmt.Println("heard", name)
}

// slowPeers is the process of the peers, as this one sees it.
type slowPeers struct {
	t    *testing.T
	in   io.Writer
	says *bufio.Scanner
}

func startSlowPeers(t *testing.T, addr string, n int) *slowPeers {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), slowPeersAtEnv+"="+addr, fmt.Sprintf("%s=%d", slowPeersEnv, n))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	says := bufio.NewScanner(out)
	t.Cleanup(func() {
		_ = in.Close()
		rest := ""
		for says.Scan() {
			rest += says.Text() + "\n"
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the peers' process: %v\n%s", err, rest)
		}
	})
	return &slowPeers{t, in, says}
}

func (p *slowPeers) order(what string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, what); err != nil {
		p.t.Fatal(err)
	}
}

func (p *slowPeers) want(line string) {
	p.t.Helper()
	if !p.says.Scan() || p.says.Text() != line {
		p.t.Fatalf("the peers said %q (%v), want %q", p.says.Text(), p.says.Err(), line)
	}
}
