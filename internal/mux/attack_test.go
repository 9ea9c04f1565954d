package mux

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
)

// An attack repeats what costs the peer little. next makes the frames of one round.
type attack struct {
	name  string
	next  func(round int) []byte
	most  int          // rounds that our end puts up with
	begin func(r *rig) // nil: the connection is as new
	end   string       // how it ends the connection then
	// answers bounds the bytes that our end may send for each round
	answers int
}

func id(round int) uint32 { return uint32(2*round + 1) }

// each opens a stream and adds what frames makes.
func each(frames func(id uint32) []byte) func(round int) []byte {
	return func(round int) []byte {
		return append(headers(id(round), getBlock, false), frames(id(round))...)
	}
}

// greeted is how many cancelled streams the time of greet is worth.
const greeted = 600

var attacks = []attack{
	{name: "rapid reset (CVE-2023-44487)", most: leastCancels + greeted, end: "ENHANCE_YOUR_CALM", answers: 1,
		next: each(func(id uint32) []byte { return h2.AppendReset(nil, id, h2.Cancel) })},
	{name: "MadeYouReset by WINDOW_UPDATE (CVE-2025-8671)", most: leastMistakes, end: "ENHANCE_YOUR_CALM", answers: 13,
		next: each(func(id uint32) []byte { return h2.AppendWindowUpdate(nil, id, 0) })},
	{name: "MadeYouReset by a window's overflow", most: leastMistakes, end: "ENHANCE_YOUR_CALM", answers: 13,
		next: each(func(id uint32) []byte { return h2.AppendWindowUpdate(nil, id, 1<<31-1) })},
	{name: "MadeYouReset by PRIORITY of a wrong length", most: leastMistakes, end: "ENHANCE_YOUR_CALM", answers: 13,
		next: each(func(id uint32) []byte { return frame(h2.PriorityFrame, 0, id, "1234") })},
	{name: "MadeYouReset by PRIORITY on itself", most: leastMistakes, end: "ENHANCE_YOUR_CALM", answers: 13,
		next: each(func(id uint32) []byte {
			return priorityOf(id, string(h2.AppendReset(nil, 0,
				h2.Code(id))[9:]))
		})},
	{name: "MadeYouReset by DATA after END_STREAM", most: leastMistakes, end: "ENHANCE_YOUR_CALM", answers: 13,
		next: each(func(id uint32) []byte { return append(data(id, "", true), data(id, "a", false)...) })},
	{name: "MadeYouReset by HEADERS after END_STREAM", most: leastMistakes, end: "ENHANCE_YOUR_CALM", answers: 13,
		next: each(func(id uint32) []byte { return append(data(id, "", true), headers(id, getBlock, true)...) })},
	{name: "malformed requests", most: leastMistakes, end: "ENHANCE_YOUR_CALM", answers: 13,
		next: func(round int) []byte { return headers(id(round), block("a", "b"), true) }},
	{name: "PING (CVE-2019-9512)", most: glitchBurst, end: "ENHANCE_YOUR_CALM", answers: 17,
		next: func(int) []byte { return h2.AppendPing(nil, [8]byte{}, false) }},
	{name: "PING's ACK", most: glitchBurst, end: "ENHANCE_YOUR_CALM",
		next: func(int) []byte { return h2.AppendPing(nil, [8]byte{}, true) }},
	{name: "SETTINGS (CVE-2019-9515)", most: glitchBurst / settingsCost, end: "ENHANCE_YOUR_CALM", answers: 9,
		next: func(int) []byte { return h2.AppendSettings(nil) }},
	{name: "PRIORITY (CVE-2019-9513)", most: glitchBurst, end: "ENHANCE_YOUR_CALM",
		next: func(round int) []byte { return priorityOf(id(round), "\x00\x00\x00\x00") }},
	{name: "PRIORITY_UPDATE", most: glitchBurst, end: "ENHANCE_YOUR_CALM",
		next: func(round int) []byte { return h2.AppendPriorityUpdate(nil, id(round), "u=1") }},
	{name: "WINDOW_UPDATE", most: glitchBurst, end: "ENHANCE_YOUR_CALM",
		next: func(int) []byte { return h2.AppendWindowUpdate(nil, 0, 1) }},
	{name: "unknown frames", most: glitchBurst, end: "ENHANCE_YOUR_CALM",
		next: func(int) []byte { return frame(77, 0, 0, "") }},
	{name: "empty DATA (CVE-2019-9518)", most: glitchBurst / emptyCost, end: "ENHANCE_YOUR_CALM",
		next: func(round int) []byte {
			if round == 0 {
				return headers(1, getBlock, false)
			}
			return data(1, "", false)
		}},
	{name: "empty CONTINUATION (CVE-2023-45288)", most: 16 + 64<<10/4096, end: "ENHANCE_YOUR_CALM",
		next: func(round int) []byte {
			if round == 0 {
				return frame(h2.Headers, 0, 1, "")
			}
			return frame(h2.Continuation, 0, 1, "")
		}},
	{name: "large CONTINUATION (CVE-2023-45288)", most: 5, end: "ENHANCE_YOUR_CALM",
		next: func(round int) []byte {
			if round == 0 {
				return frame(h2.Headers, 0, 1, "")
			}
			return frame(h2.Continuation, 0, 1, strings.Repeat("\x82", 16<<10))
		}},
	{name: "streams behind the last GOAWAY", most: glitchBurst, end: "ENHANCE_YOUR_CALM", begin: func(r *rig) {
		r.write(headers(1, getBlock, false))
		r.settle()
		r.onLoop(r.conn.Shutdown)
		r.write(h2.AppendPing(nil, drainPing, true))
		r.sent()
	}, next: func(round int) []byte { return headers(id(round+1), getBlock, false) }},
	{name: "streams that are refused", most: leastMistakes + 200, end: "ENHANCE_YOUR_CALM", answers: 13,
		next: func(round int) []byte { return headers(id(round), getBlock, false) }},
}

// Each attack ends its connection after a bounded number of rounds. Until then our end holds no
// more than a connection may, and sends no more than it must.
func TestAttacks(t *testing.T) {
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			r := newRig(t, Config{})
			r.greet()
			if a.begin != nil {
				a.begin(r)
			}
			before := buf.InUse()
			var all bytes.Buffer
			rounds := 0
			for ; r.conn.state != failed && rounds <= a.most+1000; rounds += 50 {
				for i := range 50 {
					all.Write(a.next(rounds + i))
				}
				r.write(all.Bytes())
				all.Reset()
				r.RunFor(5 * time.Millisecond)
				for n, s := range r.conn.streams { // handlers end when their streams do
					if s.state == closed {
						s.Release()
						delete(r.conn.streams, n)
					}
				}
				if n := len(r.conn.streams); n > 2*r.cfg.Streams {
					t.Fatalf("%d handlers", n)
				}
				if n := buf.InUse() - before; n > 200 {
					t.Fatalf("%d blocks", n)
				}
			}
			if rounds > a.most*21/20+200 { // the passing time gives some back
				t.Errorf("%d rounds, want at most %d", rounds, a.most)
			}
			sent := r.sent()
			if n := len(sent); n == 0 || !strings.Contains(sent[n-1], "GOAWAY") || !strings.Contains(sent[n-1],
				a.end) {
				t.Errorf("it has ended by %q", sent[max(0, len(sent)-1):])
			}
			size := 0
			for _, f := range sent[:max(0, len(sent)-1)] {
				size += map[bool]int{true: 17, false: 13}[strings.HasPrefix(f, "PING")]
				if strings.HasPrefix(f, "SETTINGS") {
					size -= 4
				}
			}
			if size > a.answers*(rounds+1) {
				t.Errorf("%d bytes in answer to %d rounds", size, rounds)
			}
			if n := r.cfg.Counters.Calmed.Load(); n != 1 {
				t.Errorf("%d in the statistics", n)
			}
		})
	}
}

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
