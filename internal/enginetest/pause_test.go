package enginetest

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

// A paused conn takes nothing, so that its peer is blocked in the end; what was under way is kept
// and comes first.
func TestPauseAndResume(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		var got bytes.Buffer
		var paused atomic.Bool
		h.received = func(c *myriad.Conn, p []byte) {
			if paused.Load() {
				t.Error("Received while paused")
			}
			got.Write(p)
			if got.Len() == len(p) {
				paused.Store(true)
				c.Pause()
			}
		}
		nc := s.one(t, myriad.Config{}, h)
		c := await(t, "Opened", h.opens)
		const sum = 24 << 20
		var written atomic.Int64
		go func() {
			for p := pattern(sum); len(p) > 0; p = p[1<<16:] {
				if _, err := nc.Write(p[:1<<16]); err != nil {
					t.Errorf("write: %v", err)
					return
				}
				written.Add(1 << 16)
			}
			closeWrite(t, nc)
		}()
		eventually(t, "the conn is paused", paused.Load)
		last := int64(-1)
		eventually(t, "the peer is blocked", func() bool {
			time.Sleep(20 * time.Millisecond)
			now := written.Load()
			defer func() { last = now }()
			return now == last
		})
		if last == sum {
			t.Fatal("the peer was never blocked")
		}
		onLoop(t, c, func() { paused.Store(false); c.Resume() })
		if err := await(t, "Closed", h.closes); err != nil {
			t.Errorf("Closed(%v)", err)
		}
		if !bytes.Equal(got.Bytes(), pattern(sum)) {
			t.Errorf("got %d bytes that are not what was sent", got.Len())
		}
	})
}

// Whatever a handler does with Pause and Resume, it gets all bytes in order, and then Ended.
func TestPauseInEveryCallback(t *testing.T) {
	t.Parallel()
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		var got bytes.Buffer
		n := 0
		h.received = func(c *myriad.Conn, p []byte) {
			got.Write(p)
			switch n++; n % 4 {
			case 0:
				c.Pause()
				c.Notify()
			case 1:
				c.Pause()
				c.Resume()
			case 2:
				c.Pause()
				_ = c.Loop().Do(c.Resume)
			case 3:
				c.Pause()
				c.SetTimer(time.Millisecond)
			}
		}
		h.notified = func(c *myriad.Conn) { c.Resume() }
		h.expired = func(c *myriad.Conn) { c.Resume() }
		nc := s.one(t, myriad.Config{ReadBuffer: 1 << 10}, h)
		msg := pattern(200_000)
		send(t, nc, msg)
		closeWrite(t, nc)
		if err := await(t, "Closed", h.closes); err != nil {
			t.Errorf("Closed(%v)", err)
		}
		if !bytes.Equal(got.Bytes(), msg) {
			t.Errorf("got %d bytes that are not what was sent", got.Len())
		}
	})
}

// The peer's FIN behind bytes that are held is heard after them, also when our side has ended
// already.
func TestEndWhilePaused(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		var heard bytes.Buffer
		h.opened = func(c *myriad.Conn) { c.Pause() }
		h.received = func(c *myriad.Conn, p []byte) {
			heard.Write(p)
			if heard.Len() == 5 {
				c.CloseWrite()
			}
		}
		h.ended = func(c *myriad.Conn) { heard.WriteString(" end") }
		nc := s.one(t, myriad.Config{}, h)
		c := await(t, "Opened", h.opens)
		send(t, nc, []byte("bytes"))
		closeWrite(t, nc)
		if h.endings.Load() > 0 || len(h.closes) > 0 {
			t.Fatal("the end was heard while paused")
		}
		onLoop(t, c, c.Resume)
		expectEnd(t, nc, nil)
		if err := await(t, "Closed", h.closes); err != nil || heard.String() != "bytes end" {
			t.Errorf("Closed(%v) after %q", err, heard.String())
		}
	})
}

func TestCloseWhilePaused(t *testing.T) {
	eachLayer(t, func(t *testing.T, s setting) {
		h := newProbe()
		h.opened = func(c *myriad.Conn) { c.Pause() }
		h.received = func(*myriad.Conn, []byte) { t.Error("Received while paused") }
		nc := s.one(t, myriad.Config{LingerTimeout: time.Hour}, h)
		c := await(t, "Opened", h.opens)
		send(t, nc, pattern(50_000))
		c.Write([]byte("answer"))
		c.Close()
		expectEnd(t, nc, []byte("answer"))
		nc.Close()
		if err := await(t, "Closed", h.closes); err != nil {
			t.Errorf("Closed(%v)", err)
		}
	})
}
