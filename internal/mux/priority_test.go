package mux

import (
	"fmt"
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

// order is the streams of the DATA frames that our end has sent.
func order(frames []string) (list []string) {
	for _, f := range frames {
		var stream, n int
		if k, _ := fmt.Sscanf(f, "DATA %d %d bytes", &stream, &n); k == 2 {
			list = append(list, fmt.Sprint(stream))
		}
	}
	return list
}

// priorityRig has a connection whose window is closed, so that requests line up, and opens it.
func priorityRig(t *testing.T) *rig {
	r := newRig(t, Config{Outbox: 1 << 20})
	r.greet(h2.Setting{ID: h2.InitialWindowSize, Value: 1 << 24})
	r.download(1, "u=7", h2.InitialWindow) // takes the connection's whole window
	r.sent()
	return r
}

func TestPriorities(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(r *rig)
		want string
	}{
		{"no signals: in turns", func(r *rig) {
			r.download(3, "", 3*16375)
			r.download(5, "", 2*16375)
		}, "3 5 3 5 3"},
		{"incremental: in turns", func(r *rig) {
			r.download(3, "i", 3*16375)
			r.download(5, "i", 2*16375)
		}, "3 5 3 5 3"},
		{"not incremental: one after the other", func(r *rig) {
			r.download(3, "u=3", 3*16375)
			r.download(5, "u=3", 2*16375)
		}, "3 3 3 5 5"},
		{"by urgency", func(r *rig) {
			r.download(3, "u=5", 2*16375)
			r.download(5, "u=1", 2*16375)
			r.download(7, "u=3", 2*16375)
		}, "5 5 7 7 3 3"},
		{"PRIORITY_UPDATE", func(r *rig) {
			r.download(3, "u=3", 2*16375)
			r.download(5, "u=3", 2*16375)
			r.write(h2.AppendPriorityUpdate(nil, 5, "u=0"))
		}, "5 5 3 3"},
		{"PRIORITY_UPDATE before its stream", func(r *rig) {
			r.write(h2.AppendPriorityUpdate(nil, 5, "u=0"))
			r.download(3, "u=3", 2*16375)
			r.download(5, "u=3", 2*16375)
		}, "5 5 3 3"},
		{"a lower urgency does not starve: each 16th quantum", func(r *rig) {
			r.download(3, "u=0", 40*16375)
			r.download(5, "u=7", 2*16375)
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := priorityRig(t)
			tt.do(r)
			r.sent()
			r.write(h2.AppendWindowUpdate(nil, 0, 1<<24))
			got := strings.Join(order(r.sent()), " ")
			if tt.want != "" && got != tt.want {
				t.Errorf("DATA of the streams %s, want %s", got, tt.want)
			}
			if tt.want == "" && (strings.Count(got, "5") != 2 || strings.HasSuffix(got, "5")) {
				t.Errorf("DATA of the streams %s", got)
			}
		})
	}
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
