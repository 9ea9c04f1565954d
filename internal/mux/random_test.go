package mux

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/h2"
)

// randomFrame is something that a peer may send, most of the time nearly right.
func randomFrame(r *rand.Rand) []byte {
	stream := uint32(r.IntN(12))
	payload := strings.Repeat(string(rune(r.IntN(256))), r.IntN(40))
	switch r.IntN(14) {
	default:
		return headers(stream|1, get(), r.IntN(2) == 0)
	case 0:
		return frame(h2.Type(r.IntN(20)), uint8(r.IntN(256)), stream, payload)
	case 1, 2, 3:
		return data(stream|1, payload, r.IntN(4) == 0)
	case 4:
		return h2.AppendWindowUpdate(nil, stream, r.IntN(1<<r.IntN(31)))
	case 5:
		return h2.AppendReset(nil, stream|1, h2.Code(r.IntN(14)))
	case 6:
		return h2.AppendSettings(nil, h2.Setting{ID: h2.SettingID(r.IntN(10)), Value: r.Uint32() >> r.IntN(32)})
	case 7:
		return h2.AppendPriorityUpdate(nil, stream, payload)
	case 8:
		return append(frame(h2.Headers, uint8(r.IntN(2)), stream|1, string(getBlock[:3])),
			frame(h2.Continuation, h2.EndHeaders, stream|1, string(getBlock[3:]))...)
	}
}

// Frames in any order do no harm: the owner's calls stay in order, and the connection holds what it
// may, or ends.
func TestRandomFrames(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 3))
		r := newRig(t, Config{Client: seed%4 == 3, Streams: 1 + rng.IntN(6), Window: 1 + rng.IntN(1000),
			Outbox: 1 + rng.IntN(1000), Connect: true})
		r.on = func(s *testStream, _ *h2.Head, _ bool) {
			if rng.IntN(3) > 0 {
				_ = s.Put(pairs(":status", "200"), make([]byte, rng.IntN(500)), rng.IntN(2) == 0)
			}
		}
		if seed%4 == 3 {
			r.settle()
		} else {
			r.write([]byte(h2.Preface))
		}
		r.write(h2.AppendSettings(nil), h2.AppendSettingsAck(nil))
		for range 60 {
			for range 1 + rng.IntN(3) {
				r.write(randomFrame(rng))
			}
			r.RunFor(time.Millisecond)
			if r.conn.gone || r.conn.state == failed {
				break
			}
			disturb(r, rng)
		}
		r.settle()
		c := &r.conn.Conn
		if c.window.recv < 0 || int(c.window.recv) > c.cfg.ConnWindow || c.places.count < 0 ||
			int(c.places.count) > 2*c.cfg.Streams {
			t.Fatalf("seed %d: window %d, %d streams", seed, c.window.recv, c.places.count)
		}
		ended := map[string]bool{}
		for _, line := range r.log {
			stream, what, _ := strings.Cut(line, " ")
			if ended[stream] {
				t.Fatalf("seed %d: after its end: %q", seed, line)
			}
			ended[stream] = strings.HasPrefix(what, "ended")
		}
	}
}

// disturb does to a stream what handlers do.
func disturb(r *rig, rng *rand.Rand) {
	ids := slices.Sorted(maps.Keys(r.conn.streams))
	if len(ids) == 0 {
		return
	}
	switch s := r.conn.streams[ids[rng.IntN(len(ids))]]; rng.IntN(12) {
	case 0:
		s.Cancel(h2.Cancel)
	case 1:
		s.Release()
	case 2:
		_ = s.End(pairs("a", "b"))
	case 3, 4:
		if _, tell, _ := s.in.Read(make([]byte, 300)); tell {
			s.Notify()
		}
	}
}
