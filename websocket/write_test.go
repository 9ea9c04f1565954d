package websocket

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

func TestWriteSizes(t *testing.T) {
	h := hold(t, &Options{PingInterval: quiet, WriteLimit: 1 << 20}, myriad.Config{})
	var want []string
	for _, n := range []int{0, 1, 125, 126, 127, copied - 4, copied, copied + 1, 65535, 65536, 200_000} {
		p := bytes.Repeat([]byte{byte(n)}, n)
		if err := h.conn.Write(OpBinary, p); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
		want = append(want, line(OpBinary, string(p)))
		fill(p, 'x') // it was copied
	}
	h.Settle()
	h.wantRead(want...)
	h.finish()
}

func TestWriteRefuses(t *testing.T) {
	h := hold(t, &Options{PingInterval: quiet}, myriad.Config{MaxWrite: 1000})
	for _, op := range []Op{opContinuation, 3, OpClose, OpPing, OpPong, 11} {
		if err := h.conn.Write(op, nil); err == nil {
			t.Errorf("Write(%v) was taken", op)
		}
		if _, err := Prepare(op, nil); err == nil {
			t.Errorf("Prepare(%v) was taken", op)
		}
	}
	if err := h.conn.Write(OpText, make([]byte, 1001)); !errors.Is(err, myriad.ErrTooLarge) {
		t.Errorf("above Config.MaxWrite: %v", err)
	}
	h.Settle()
	h.wantRead()
	h.finish()
}

// A peer that does not read costs its limit and no more. A Write gives up after WriteTimeout, whole;
// the next ones do not wait until there has been room, and then wait anew.
func TestWriteTimeout(t *testing.T) {
	const timeout = 3 * time.Second
	h := holdSlow(t, &Options{WriteTimeout: timeout})
	var taken []string
	for range 2 {
		var began time.Time
		var err error
		for i := 0; err == nil; i++ {
			p := strings.Repeat(string(rune('a'+i%26)), 100+i)
			began = h.Now()
			if err = h.conn.Write(OpText, []byte(p)); err == nil {
				taken = append(taken, line(OpText, p))
			}
			if queued := h.conn.Queued(); queued > slowLimit {
				t.Fatalf("%d bytes are queued, the limit is %d", queued, slowLimit)
			}
		}
		if !errors.Is(err, myriad.ErrFull) || !errors.Is(err, os.ErrDeadlineExceeded) ||
			!strings.Contains(err.Error(), "WriteTimeout") {
			t.Errorf("Write: %v", err)
		}
		if waited := h.Now().Sub(began); waited < timeout || waited > timeout+time.Second {
			t.Errorf("Write has waited for %v, want %v", waited, timeout)
		}
		if n := h.conn.slow().Waiters(); n > 0 {
			t.Errorf("%d writers are to be woken that do not wait", n)
		}
		began = h.Now()
		if err = h.conn.Write(OpText, numbered(0)); !errors.Is(err, myriad.ErrFull) || h.Now() != began {
			t.Errorf("the next Write: %v after %v", err, h.Now().Sub(began))
		}
		h.client.Resume()
		h.Settle()
		h.wantRead(taken...)
		h.client.StopReading()
		h.Settle()
	}
	h.client.Resume()
	h.finish()
}

// One block for all connections, and it is freed when the last has sent it.
func TestPreparedIsShared(t *testing.T) {
	const n = 50
	var conns []*Conn
	o := &Options{PingInterval: quiet, OnOpen: func(c *Conn) { conns = append(conns, c) }}
	w := newWorld(t, 1, sim.Lossless(), myriad.Config{}, Handler(o))
	var clients []*client
	for range n {
		clients = append(clients, w.client(sampleRequest))
	}
	w.Run()
	payload := strings.Repeat("news ", 5000)
	before := buf.InUse()
	m, err := Prepare(OpText, []byte(payload))
	must(t, err)
	for _, c := range conns {
		noError(t, c.WritePrepared(m))
	}
	m.Release()
	if got := buf.InUse() - before; got != 1 {
		t.Errorf("%d blocks in use for one message on %d connections", got, n)
	}
	w.Run()
	for _, c := range clients {
		if got := c.lines(t); !slices.Equal(got, lines(line(OpText, payload))) {
			t.Errorf("a client read %.100q", got)
		}
		c.Close()
	}
	if got := buf.InUse() - before; got != 0 {
		t.Errorf("%d blocks in use after all have sent it", got)
	}
	w.Run()
	for _, c := range conns {
		if err := c.Write(OpText, nil); err == nil {
			t.Error("a closed connection takes a message")
		}
	}
	w.stop()
}

func TestWriteDoesNotAllocate(t *testing.T) {
	h := hold(t, &Options{PingInterval: quiet, WriteLimit: 1 << 30}, myriad.Config{})
	small, large := make([]byte, 128), make([]byte, 3*copied)
	m, err := Prepare(OpText, small)
	must(t, err)
	for name, f := range map[string]func() error{
		"small":    func() error { return h.conn.Write(OpText, small) },
		"large":    func() error { return h.conn.Write(OpText, large) },
		"prepared": func() error { return h.conn.WritePrepared(m) },
	} {
		must(t, f())
		got := testing.AllocsPerRun(200, func() { _ = f() })
		h.Settle()
		if limit := map[string]float64{"small": 0, "large": 2, "prepared": 0}[name]; got > limit && !raceEnabled {
			t.Errorf("%s: %v allocations for a write, want at most %v", name, got, limit)
		}
	}
	m.Release()
	h.finish()
}
