package enginetest

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/bound"
	"github.com/myriad-go/myriad/internal/soak"
)

// patience is how long a test waits for what must happen before it gives up: some take ten seconds
// where others have the processors.
var patience = soak.Patience(time.Minute)

// quiet hides the log of tests that provoke what is logged.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// driverEnv names the environment variable for Config.Driver of all engines on sockets. With
// "bound" their drivers panic unless one thread makes all calls.
const driverEnv = "MYRIAD_DRIVER"

// start runs an engine that must shut down in order when the test ends.
func start(t testing.TB, cfg myriad.Config) *myriad.Engine {
	t.Helper()
	if cfg.Driver == "" {
		cfg.Driver = os.Getenv(driverEnv)
	}
	if cfg.Driver == "bound" {
		cfg.Driver = ""
		if cfg.System == nil {
			cfg.System = bound.System{System: inBound()}
		}
	}
	if cfg.Loops == 0 {
		cfg.Loops = 2
	}
	if cfg.LingerTimeout == 0 {
		cfg.LingerTimeout = patience // a peer may be held up
	}
	e, err := myriad.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Shutdown(atLength(t)); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return e
}

// atLength returns a context for a call that must return. It ends after patience.
func atLength(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// timeless is the system of the other engines, but that its clock stands still: no goroutine is
// late, however long it is held up.
func timeless(t testing.TB) driver.System {
	return halted{start(t, myriad.Config{}).System(), time.Now()}
}

type halted struct {
	driver.System
	at time.Time
}

func (h halted) Now() time.Time { return h.at }

// A setting is how one run of a test is layered: wrap is for its handlers, client for the peers'
// side.
type setting struct {
	layered bool
	wrap    func(h myriad.Handler) myriad.Handler
	client  func(nc net.Conn) net.Conn
}

// bare and keep are of a setting without a layer.
func bare(h myriad.Handler) myriad.Handler { return h }
func keep(nc net.Conn) net.Conn            { return nc }

// eachLayer runs a test bare and under the XOR layer.
func eachLayer(t *testing.T, f func(t *testing.T, s setting)) {
	t.Run("bare", func(t *testing.T) {
		f(t, setting{wrap: bare, client: keep})
	})
	t.Run("xor", func(t *testing.T) {
		f(t, setting{true, func(h myriad.Handler) myriad.Handler { return withXOR(h) }, newXORConn})
	})
}

// listen serves h on a loopback port.
func (s setting) listen(t testing.TB, e *myriad.Engine, h myriad.Handler) *myriad.Listener {
	t.Helper()
	ln, err := e.Listen("tcp", "127.0.0.1:0", s.wrap(h))
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// dial connects a peer that is closed when the test ends, before the engine.
func (s setting) dial(t testing.TB, ln *myriad.Listener) net.Conn {
	t.Helper()
	nc, err := net.Dial(ln.Addr().Network(), ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return s.own(t, nc)
}

func (s setting) own(t testing.TB, nc net.Conn) net.Conn {
	_ = nc.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { nc.Close() })
	return s.client(nc)
}

// one serves h and connects one peer to it.
func (s setting) one(t testing.TB, cfg myriad.Config, h myriad.Handler) net.Conn {
	t.Helper()
	return s.dial(t, s.listen(t, start(t, cfg), h))
}

// A probe is a handler made of functions. Those that are nil do nothing, except ended, which
// closes. It reports what a test waits for on channels.
type probe struct {
	opened                     func(c *myriad.Conn)
	received                   func(c *myriad.Conn, p []byte)
	ended, drained, expired    func(c *myriad.Conn)
	notified                   func(c *myriad.Conn)
	opens                      chan *myriad.Conn
	closes                     chan error
	openings, endings, closing atomic.Int32
}

func newProbe() *probe {
	return &probe{opens: make(chan *myriad.Conn, 1024), closes: make(chan error, 1024)}
}

func (h *probe) Opened(c *myriad.Conn) {
	h.openings.Add(1)
	if h.opened != nil {
		h.opened(c)
	}
	h.opens <- c
}

func (h *probe) Received(c *myriad.Conn, p []byte) {
	if h.received != nil {
		h.received(c, p)
	}
}

func (h *probe) Ended(c *myriad.Conn) {
	h.endings.Add(1)
	if h.ended != nil {
		h.ended(c)
	} else {
		c.Close()
	}
}

func (h *probe) Drained(c *myriad.Conn) { call(h.drained, c) }

func (h *probe) Expired(c *myriad.Conn) { call(h.expired, c) }

func (h *probe) Notified(c *myriad.Conn) { call(h.notified, c) }

func (h *probe) Closed(_ *myriad.Conn, err error) {
	h.closing.Add(1)
	h.closes <- err
}

func call(f func(*myriad.Conn), c *myriad.Conn) {
	if f != nil {
		f(c)
	}
}

func await[T any](t testing.TB, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Fatalf("waited too long for %s", what)
	}
	return v
}

// onLoop runs f on the conn's loop and waits for it.
func onLoop(t testing.TB, c *myriad.Conn, f func()) {
	t.Helper()
	done := make(chan struct{})
	if err := c.Loop().Do(func() { defer close(done); f() }); err != nil {
		t.Fatal(err)
	}
	await(t, "a function on the loop", done)
}

// eventually is for what another goroutine brings about at its own pace.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited too long until %s", what)
		}
	}
}

func send(t testing.TB, nc net.Conn, p []byte) {
	t.Helper()
	if _, err := nc.Write(p); err != nil {
		t.Errorf("write: %v", err)
	}
}

func expect(t testing.TB, nc net.Conn, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(nc, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("read %d bytes (%v): %q, want %q", n, err, clip(got[:n]), clip(want))
	}
}

// expectEnd reads the rest, which must be want and then an orderly end.
func expectEnd(t testing.TB, nc net.Conn, want []byte) {
	t.Helper()
	got, err := io.ReadAll(nc)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %d bytes to the end (%v), want %d: %q, want %q", len(got), err, len(want), clip(got), clip(want))
	}
}

func clip(p []byte) []byte { return p[:min(len(p), 40)] }

func closeWrite(t testing.TB, nc net.Conn) {
	t.Helper()
	if err := nc.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Errorf("CloseWrite: %v", err)
	}
}

// pattern is bytes that are different at every place, so that a loss or an exchange shows.
func pattern(n int) []byte {
	p := make([]byte, n)
	x := uint32(n) | 1
	for i := range p {
		x = x*1664525 + 1013904223
		p[i] = byte(x >> 24)
	}
	return p
}

type echo struct{}

func (echo) Opened(*myriad.Conn)               {}
func (echo) Received(c *myriad.Conn, p []byte) { c.Write(p) }
func (echo) Closed(*myriad.Conn, error)        {}
