package mux

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/h2"
)

// Padding is consumed at once: a peer that pads does not run out of window (section 6.9.1).
func TestPaddingIsCredited(t *testing.T) {
	r := newRig(t, Config{Window: 1 << 16, Streams: 1})
	r.greet()
	r.write(headers(1, getBlock, false))
	granted := 0
	for range 400 {
		r.write(frame(h2.Data, h2.Padded, 1, "\xfex"+strings.Repeat("\x00", 254)))
		granted -= 256
	}
	for _, f := range r.sent() {
		var stream, n int
		if k, _ := fmt.Sscanf(f, "WINDOW_UPDATE %d %d", &stream, &n); k != 2 {
			t.Fatal(f)
		}
		if stream == 1 {
			granted += n
		}
	}
	if granted < -1<<15-400 {
		t.Errorf("%d bytes of padding were not granted again", -granted)
	}
}

// A frame that comes byte by byte is handled once, and no more than a frame is kept.
func TestDribble(t *testing.T) {
	r := newRig(t, Config{})
	piece := strings.Repeat("x", 1<<14)
	all := append([]byte(h2.Preface), h2.AppendSettings(nil)...)
	all = append(append(all, headers(1, getBlock, false)...), data(1, piece, false)...)
	all = append(append(all, data(1, piece, false)...), data(1, "", true)...)
	for len(all) > 0 {
		n := min(len(all), 999)
		r.write(all[:n])
		all = all[n:]
		r.RunFor(2 * time.Millisecond)
		if b := r.conn.act.partial; b != nil && b.Cap() > 1<<15 {
			t.Fatalf("%d bytes are kept", b.Cap())
		}
	}
	r.settle()
	s := r.conn.streams[1]
	if n := s.in.State().Unread; n != 1<<15 || !s.in.Complete() || r.conn.act.partial != nil {
		t.Errorf("%d bytes have come, complete: %v; %v is kept", n, s.in.Complete(), r.conn.act.partial)
	}
}

// A large request leaves no large buffers at a connection whose streams stay open.
func TestBuffersShrink(t *testing.T) {
	r := newRig(t, Config{})
	r.greet()
	var fields []string
	for i := range 500 {
		fields = append(fields, fmt.Sprintf("x-%d", i), strings.Repeat("v", 80))
	}
	r.write(headers(1, get(fields...), false))
	r.settle()
	if n := len(r.conn.streams[1].head.Fields); n != 500 {
		t.Fatalf("%d fields", n)
	}
	if a := r.conn.act; cap(a.fields) > keptFields || cap(a.block.p) > keptScratch || cap(a.scratch) > keptScratch {
		t.Errorf("room for %d fields, %d and %d bytes", cap(a.fields), cap(a.block.p), cap(a.scratch))
	}
}
