package websocket

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
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
