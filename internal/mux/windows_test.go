package mux

import (
	"strconv"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/internal/h2"
)

// A closed stream's unread bytes are the connection's again at once.
func TestConnectionWindowDoesNotLeak(t *testing.T) {
	r := newRig(t, Config{ConnWindow: 1 << 16, Streams: 2})
	r.greet()
	total, granted := 0, h2.InitialWindow+1
	piece := strings.Repeat("x", 16000)
	for id := uint32(1); id < 60; id += 2 {
		r.write(headers(id, getBlock, false), data(id, piece, false))
		total += len(piece)
		if id%4 == 1 {
			r.write(h2.AppendReset(nil, id, h2.Cancel))
		} else {
			r.settle()
			r.conn.streams[id].Cancel(h2.Cancel)
		}
		r.settle()
		r.conn.streams[id].Release()
		for _, f := range r.sent() {
			if by, ok := strings.CutPrefix(f, "WINDOW_UPDATE 0 "); ok {
				n, err := strconv.Atoi(by)
				if err != nil {
					t.Fatal(err)
				}
				granted += n
			}
		}
		if granted-total < 1<<15 {
			t.Fatalf("after stream %d: %d bytes of window are left", id, granted-total)
		}
	}
}

// Many streams that have read what they got, each less than a window, must not keep the
// connection's window to themselves.
func TestReadersDoNotStarveEachOther(t *testing.T) {
	const streams, size = 8, 8000
	r := newRig(t, Config{Streams: streams, ConnWindow: 1 << 16})
	r.greet()
	left := 1 << 16
	for i := range uint32(streams) {
		r.write(headers(2*i+1, getBlock, false), data(2*i+1, strings.Repeat("x", size), false))
		left -= size
		r.settle()
		s := r.conn.streams[2*i+1]
		if _, tell, _ := s.in.Read(make([]byte, size)); tell {
			s.Notify()
		}
		for _, f := range r.sent() {
			by, ok := strings.CutPrefix(f, "WINDOW_UPDATE 0 ")
			n, err := strconv.Atoi(by)
			if !ok || err != nil {
				t.Fatal(f)
			}
			left += n
		}
		if left < 1<<15 {
			t.Fatalf("%d bytes of window are left after %d streams", left, i+1)
		}
	}
}
