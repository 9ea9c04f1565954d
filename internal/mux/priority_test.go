package mux

import (
	"strings"
	"testing"

	"github.com/myriad-go/myriad/internal/h2"
)

// open starts a request with a priority, and has it answered with size bytes.
func (r *rig) download(stream uint32, priority string, size int) {
	r.t.Helper()
	fields := get()
	if priority != "" {
		fields = get("priority", priority)
	}
	r.write(headers(stream, fields, true))
	r.settle()
	s := r.conn.streams[stream]
	if err := s.Put(pairs(":status", "200"), make([]byte, size), true); err != nil {
		r.t.Fatal(err)
	}
	r.settle()
}

// A small answer overtakes a large download that is under way: no more than what was sent ahead
// stands before it.
func TestDownloadLeavesRoom(t *testing.T) {
	r := newRig(t, Config{Outbox: 8 << 20})
	r.greet(h2.Setting{ID: h2.InitialWindowSize, Value: 1 << 24})
	r.write(h2.AppendWindowUpdate(nil, 0, 1<<24))
	r.peer.StopReading()
	r.download(1, "u=3", 4<<20)
	r.download(3, "u=3, i", 100)
	r.peer.Resume()
	sent, before := r.sent(), 0
	for _, f := range sent {
		if strings.HasPrefix(f, "HEADERS 3") {
			break
		}
		before++
	}
	// 64 KiB ahead in the conn, a block under way, and what the kernels hold
	if most := (64<<10+16<<10+128<<10)/16375 + 4; before > most || len(sent) < 250 {
		t.Errorf("%d of %d frames stand before the small answer, want at most %d", before, len(sent), most)
	}
}
