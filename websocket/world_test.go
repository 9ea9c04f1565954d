package websocket

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/leaktest"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/workers"
)

const sampleRequest = "GET /chat HTTP/1.1\r\nHost: example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
	"Sec-WebSocket-Key: " + sampleKey + "\r\nSec-WebSocket-Version: 13\r\n\r\n"

// logLines is what callbacks and loggers of a test write to.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *logLines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

func (l *logLines) Write(p []byte) (int, error) {
	l.add("%s", p)
	return len(p), nil
}

// recorded has each callback write a line. What of options is set already is called, too.
func recorded(o *Options) (*Options, *logLines) {
	l := new(logLines)
	inner := struct {
		open    func(*Conn)
		message func(*Conn, Op, []byte)
	}{o.OnOpen, o.OnMessage}
	o.OnOpen = func(c *Conn) {
		l.add("open")
		if inner.open != nil {
			inner.open(c)
		}
	}
	if !o.Pull {
		o.OnMessage = func(c *Conn, op Op, p []byte) {
			l.add("%s", describe(op, false, p))
			if inner.message != nil {
				inner.message(c, op, p)
			}
		}
	}
	o.OnClose = func(_ *Conn, err error) { l.add("end %d", CloseStatus(err)) }
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(l, nil))
	}
	return o, l
}

func echoBack(c *Conn, op Op, p []byte) { _ = c.Write(op, p) }

// A world is an engine on the simulator that serves WebSockets.
type world struct {
	*sim.World
	t  *testing.T
	e  *myriad.Engine
	ln *myriad.Listener
}

func newWorld(t *testing.T, seed uint64, faults sim.Options, cfg myriad.Config, h myriad.Handler) *world {
	t.Helper()
	w := &world{World: sim.New(seed, faults), t: t}
	cfg.System = w.World
	if cfg.Loops == 0 {
		cfg.Loops = 2
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	var err error
	if w.e, err = myriad.Start(cfg); err != nil {
		t.Fatal(err)
	}
	if w.ln, err = w.e.Listen("tcp", "127.0.0.1:0", h); err != nil {
		t.Fatal(err)
	}
	return w
}

// stop ends the engine in fake time and looks for leaks.
func (w *world) stop() {
	w.t.Helper()
	if err := w.e.Shutdown(context.Background()); err != nil {
		w.t.Errorf("seed %d: shutdown: %v", w.Seed(), err)
	}
	w.Run()
	w.Check(w.t)
}

// finish ends the world behind its clients.
func (w *world) finish(clients ...*client) {
	w.t.Helper()
	for _, c := range clients {
		c.Close()
	}
	w.Run()
	w.stop()
}

// client is a peer that speaks frames.
type client struct{ *sim.Peer }

func (w *world) client(wire string) *client {
	p := w.Dial(w.ln.Addr())
	p.Write([]byte(wire))
	return &client{p}
}

func (c *client) send(op Op, payload string) { c.Write([]byte(clientFrame(true, op, payload))) }

// lines are the frames the server has sent, or its response if that is no 101.
func (c *client) lines(t *testing.T) []string {
	t.Helper()
	return serverLines(t, c.Received())
}

func serverLines(t *testing.T, p []byte) []string {
	t.Helper()
	head, frames, ok := bytes.Cut(p, []byte("\r\n\r\n"))
	if !ok {
		return []string{fmt.Sprintf("no response: %q", p)}
	}
	status, _, _ := strings.Cut(string(head), "\r\n")
	if !strings.HasPrefix(status, "HTTP/1.1 101 ") {
		return []string{status}
	}
	return transcript(t, &readRules{limit: 1 << 24}, frames)
}

// eachDispatch runs a test under all ways to call callbacks.
func eachDispatch(t *testing.T, f func(t *testing.T, d web.Dispatch)) {
	for _, d := range []web.Dispatch{web.DispatchPool, web.DispatchInline, web.DispatchAuto} {
		t.Run(d.String(), func(t *testing.T) { f(t, d) })
	}
}

// quickly is DispatchAuto with all callbacks known to be quick: they run on the loop from the first
// on. It is for handlerOf.
const quickly web.Dispatch = 255

// handlerOf is Handler for options that may have quickly.
func handlerOf(t testing.TB, o *Options) myriad.Handler {
	t.Helper()
	if o.Dispatch == quickly {
		o.Dispatch = web.DispatchAuto
		learn(t, o)
	}
	return Handler(o)
}

// learn has the callbacks begin as quick on every loop.
func learn(t testing.TB, o *Options) {
	t.Helper()
	s, err := o.settings()
	must(t, err)
	c := s.dispatching(o)
	c.Learned = true
	s.tasks = dispatch.New(c)
}

// eachQueue runs a test that has its handler from handlerOf under all ways to call callbacks from a
// backlog.
func eachQueue(t *testing.T, f func(t *testing.T, d web.Dispatch)) {
	for name, d := range map[string]web.Dispatch{"pool": web.DispatchPool, "auto": web.DispatchAuto,
		"quickly": quickly} {
		t.Run(name, func(t *testing.T) { f(t, d) })
	}
}

// eachWay is eachQueue and DispatchInline.
func eachWay(t *testing.T, f func(t *testing.T, d web.Dispatch)) {
	eachQueue(t, f)
	t.Run("inline", func(t *testing.T) { f(t, web.DispatchInline) })
}

const quiet = -1 * time.Second // switches pings off, so that the world can fall quiet

// What tests on real sockets share. Deadlines here are for tests that hang, not for time that is
// measured.
var hangs = soak.Patience(2 * time.Minute)

// must ends a test that cannot go on with err.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noError reports err.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func testLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func startEngine(t testing.TB, cfg myriad.Config) *myriad.Engine {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	e, err := myriad.Start(cfg)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hangs)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return e
}

// startPool is a pool whose goroutines end with the test.
func startPool(t testing.TB) *workers.Pool {
	t.Helper()
	pool := workers.New(workers.Config{})
	t.Cleanup(func() { _ = pool.Close(context.Background()) })
	return pool
}

func listen(t testing.TB, e *myriad.Engine, h myriad.Handler) string {
	t.Helper()
	ln, err := e.Listen("tcp", "127.0.0.1:0", h)
	must(t, err)
	return ln.Addr().String()
}

// rawPeer is a client in frames on a real socket.
type rawPeer struct {
	net.Conn
	t testing.TB
}

func dialRaw(t testing.TB, addr string) *rawPeer {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	must(t, err)
	_ = nc.SetDeadline(time.Now().Add(hangs))
	t.Cleanup(func() { nc.Close() })
	return &rawPeer{nc, t}
}

func (p *rawPeer) write(s string) {
	p.t.Helper()
	if _, err := io.WriteString(p.Conn, s); err != nil {
		p.t.Fatal(err)
	}
}

// head reads the response's head and nothing behind it.
func (p *rawPeer) head() string {
	p.t.Helper()
	var head []byte
	for b := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); {
		if _, err := io.ReadFull(p.Conn, b); err != nil {
			p.t.Fatalf("the response ends behind %q: %v", head, err)
		}
		head = append(head, b[0])
	}
	return string(head)
}

// frame reads one frame of a server.
func (p *rawPeer) frame() string {
	p.t.Helper()
	var head []byte
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(p.Conn, b); err != nil {
			return err.Error()
		}
		head = append(head, b[0])
		n, h, err := parseHeader(head, false, false)
		if err != nil {
			p.t.Fatal(err)
		}
		if n == 0 {
			continue
		}
		payload := make([]byte, h.length)
		if _, err := io.ReadFull(p.Conn, payload); err != nil {
			return err.Error()
		}
		return describe(h.op, h.rsv1, payload)
	}
}

func (p *rawPeer) closeWrite() {
	p.t.Helper()
	if err := p.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *rawPeer) open() *rawPeer {
	p.t.Helper()
	p.write(sampleRequest)
	if head := p.head(); !strings.HasPrefix(head, "HTTP/1.1 101 ") {
		p.t.Fatalf("not upgraded: %q", head)
	}
	return p
}

func (p *rawPeer) want(frames ...string) {
	p.t.Helper()
	for _, want := range frames {
		if got := p.frame(); got != want {
			p.t.Fatalf("the server sent %.200q, want %.200q", got, want)
		}
	}
}

// Goroutines write to one connection at once: whole frames arrive, each writer's own in order.
func TestWritersAtOnce(t *testing.T) {
	const writers, each = 8, 200
	e := startEngine(t, myriad.Config{})
	pool := startPool(t)
	o := &Options{Workers: pool, WriteLimit: 16 << 20, PingInterval: quiet, OnOpen: func(c *Conn) {
		for w := range writers {
			pool.TryGo(func() {
				for i := range each {
					if err := c.Write(OpText,
						[]byte(fmt.Sprintf("%d %d %s", w, i, strings.Repeat("x", i*20)))); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}}
	p := dialRaw(t, listen(t, e, Handler(o))).open()
	next := make([]int, writers)
	for range writers * each {
		var w, i int
		var x string
		f := p.frame()
		if n, _ := fmt.Sscanf(strings.Trim(strings.TrimPrefix(f, "text "), `"`), "%d %d %s", &w, &i, &x); n < 2 ||
			i != next[w] || len(x) != i*20 {
			t.Fatalf("got %.60q, want number %d of its writer", f, next[w])
		}
		next[w]++
	}
}

// Slow callbacks, quick peers, real goroutines: order holds for each connection.
func TestOrderOnThePool(t *testing.T) { eachQueue(t, testOrder) }

func testOrder(t *testing.T, d web.Dispatch) {
	const conns, each = 20, 300
	e := startEngine(t, myriad.Config{})
	heard := make(chan []string, conns)
	o := &Options{Workers: startPool(t), Dispatch: d,
		OnOpen: func(c *Conn) { c.SetValue(&[]string{}) },
		OnMessage: func(c *Conn, op Op, p []byte) {
			l := c.Value().(*[]string)
			*l = append(*l, string(p))
			if len(*l)%50 == 0 {
				time.Sleep(2 * time.Millisecond) // the callback is slow; nothing waits for this
			}
		},
		OnClose: func(c *Conn, err error) { heard <- *c.Value().(*[]string) }}
	addr := listen(t, e, handlerOf(t, o))
	var want []string
	var wire strings.Builder
	for i := range each {
		want = append(want, fmt.Sprint(i))
		wire.WriteString(clientFrame(true, OpText, fmt.Sprint(i)))
	}
	wire.WriteString(clientFrame(true, OpClose, closeWith(1000, "")))
	for range conns {
		p := dialRaw(t, addr).open()
		p.write(wire.String())
		p.closeWrite()
	}
	for range conns {
		if got := <-heard; !slices.Equal(got, want) {
			t.Fatalf("heard %d messages, %.100q", len(got), got)
		}
	}
}

func TestMain(m *testing.M) { leaktest.Main(m, leaktest.Count{Name: "blocks", Now: buf.InUse}) }
