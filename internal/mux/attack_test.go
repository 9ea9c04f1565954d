package mux

import (
	"bytes"
	"strconv"
	"testing"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
)

func id(round int) uint32 { return uint32(2*round + 1) }

// A peer that sends PING and does not read is not read either.
func TestControlFramesPauseTheInput(t *testing.T) {
	r := newRig(t, Config{Ahead: 1 << 10})
	r.greet()
	r.peer.StopReading()
	for range 200 {
		for range 20 {
			r.write(h2.AppendPing(nil, [8]byte{}, false))
		}
		r.RunFor(2 * time.Millisecond)
	}
	if !r.paused() {
		t.Error("the connection is still read")
	}
	if n := len(r.conn.act.control); n > 17*(64<<10/17+maxControls) {
		t.Errorf("%d bytes of answers wait", n)
	}
	r.peer.Resume()
	r.RunFor(time.Second)
	if n := len(r.sent()); n != 4000 || r.paused() {
		t.Errorf("%d answers, paused %v", n, r.paused())
	}
}

// Windows that stay closed hold no more than the outboxes, and one byte at a time is served.
func TestClosedWindows(t *testing.T) {
	const limit = 10 << 10
	r := newRig(t, Config{Outbox: limit})
	r.greet(h2.Setting{ID: h2.InitialWindowSize, Value: 0})
	r.on = func(s *testStream, _ *h2.Head, _ bool) {
		for s.Put(nil, make([]byte, 1000), false) == nil {
		}
	}
	for i := range 100 {
		r.write(headers(id(i), getBlock, true))
	}
	r.settle()
	for _, s := range r.conn.streams {
		if n := s.Queued(); n > limit {
			t.Fatalf("%d bytes wait in a stream", n)
		}
	}
	for range 20 {
		r.write(h2.AppendWindowUpdate(nil, 7, 1))
		r.want(`DATA 7 "\x00"`)
	}
	r.wantNothing()
}

// A field block that is small on the wire and large in memory becomes a request that is too large,
// not memory; the connection goes on.
func TestHPACKBomb(t *testing.T) {
	r := newRig(t, Config{HeaderList: 8 << 10})
	r.greet()
	var large []bool
	r.on = func(s *testStream, h *h2.Head, _ bool) { large = append(large, h.TooLarge); reply(s, "") }
	entry := hpack.AppendField(nil, []byte("a"), bytes.Repeat([]byte("x"), 4000), false)
	entry[0] |= 0x40 // into the table
	bomb := append(append(get(), entry...), bytes.Repeat([]byte{0xbe}, 10<<10)...)
	r.write(headers(1, bomb, true), headers(3, getBlock, true))
	r.want("HEADERS 1 :status=200 END")
	r.want("HEADERS 3 :status=200 END")
	if len(large) != 2 || !large[0] || large[1] {
		t.Errorf("too large: %v", large)
	}
	if n := cap(r.conn.act.fields); n > 4096 {
		t.Errorf("room for %d fields", n)
	}
	if n := r.cfg.Counters.TooLarge.Load(); n != 1 {
		t.Errorf("%d lists that are too large", n)
	}
}

// A peer that fills the table anew with each request, and empties it by size updates, gets answers
// as any other. The table stays within its size, and what a block has needed is let go.
func TestTableThrash(t *testing.T) {
	r := newRig(t, Config{})
	r.greet()
	r.on = func(s *testStream, _ *h2.Head, _ bool) { reply(s, "") }
	for i := range 300 {
		thrash := []byte{0x20, 0x3f, 0xe1, 0x1f} // to 0, and to 4096
		thrash = append(thrash, getBlock...)
		for j := range 10 {
			value := bytes.Repeat([]byte{'a' + byte((i+j)%26)}, 1500)
			entry := hpack.AppendField(nil, []byte("x"), value, false)
			entry[0] |= 0x40 // into the table
			thrash = append(thrash, entry...)
		}
		r.write(headers(id(i), thrash, true))
		r.want("HEADERS " + strconv.Itoa(2*i+1) + " :status=200 END")
		if a := r.conn.act; a != nil && len(a.decoder.Pack(nil)) > hpack.TableSize ||
			len(r.conn.table) > hpack.TableSize {
			t.Fatal("the table is larger than it may be")
		}
		for _, s := range r.conn.streams {
			s.Release()
		}
		clear(r.conn.streams)
	}
	if n := r.cfg.Counters.ConnErrors.Load(); n != 0 {
		t.Errorf("%d errors", n)
	}
}

// Streams that never end hold their places and no more: what comes beyond is refused, until their
// peer has spent its resets.
func TestStreamsThatNeverEnd(t *testing.T) {
	const refused = 100_000
	r := newRig(t, Config{Streams: 10})
	r.greet()
	before := buf.InUse()
	for i := range 10 {
		r.write(headers(id(i), getBlock, false))
	}
	r.settle()
	handled := 0
	for i := 10; i < refused && r.conn.state != failed; i += 50 {
		var all []byte
		for j := range 50 {
			all = append(all, headers(id(i+j), getBlock, false)...)
		}
		r.write(all)
		r.RunFor(time.Millisecond)
		handled += 50
		if n := len(r.conn.streams); n > 10 {
			t.Fatalf("%d streams", n)
		}
		if n := buf.InUse() - before; n > 20 {
			t.Fatalf("%d blocks", n)
		}
	}
	if handled > 2*leastMistakes {
		t.Errorf("%d of %d streams were looked at", handled, refused)
	}
	c := r.cfg.Counters
	if c.Opened.Load() != 10 || c.Refused.Load() > 2*leastMistakes || c.Calmed.Load() != 1 {
		t.Errorf("opened %d, refused %d, calmed %d", c.Opened.Load(), c.Refused.Load(), c.Calmed.Load())
	}
}
