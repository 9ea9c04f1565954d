package mux

import (
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/internal/h2"
)

func TestRequest(t *testing.T) {
	r := newRig(t, Config{})
	r.greet()
	r.on = func(s *testStream, _ *h2.Head, _ bool) { reply(s, "hello") }
	r.write(headers(1, getBlock, true))
	r.want("HEADERS 1 :status=200")
	r.want(`DATA 1 "hello" END`)
	r.wantNothing()
	r.wantLog("1 head GET / last true", "1 ended NO_ERROR, error false")
	if r.conn.idle != 1 || r.conn.Streams() != 0 {
		t.Errorf("idle %d times, %d streams", r.conn.idle, r.conn.Streams())
	}
}

func TestRequestBodyAndTrailers(t *testing.T) {
	r := newRig(t, Config{})
	r.greet()
	r.write(headers(1, getBlock, false), data(1, "abc", false), data(1, "def", false),
		headers(1, block("grpc-status", "0"), true))
	r.wantLog("1 head GET / last false", "1 trailers [{grpc-status 0 false}]")
	s := r.conn.streams[1]
	p := make([]byte, 100)
	if n, _, err := s.in.Read(p); string(p[:n]) != "abcdef" || err != io.EOF {
		t.Errorf("body %q, %v", p[:n], err)
	}
	s.Put(pairs(":status", "103", "link", "a"), nil, false)
	s.Put(pairs(":status", "200"), []byte("body"), false)
	s.End(pairs("x-sum", "1"))
	s.Release()
	r.want("HEADERS 1 :status=103 link=a")
	r.want("HEADERS 1 :status=200")
	r.want(`DATA 1 "body"`)
	r.want("HEADERS 1 x-sum=1 END")
	r.wantLog("1 ended NO_ERROR, error false")
}

// A body larger than all windows: the peer sends as far as WINDOW_UPDATE lets it.
func TestWindowsFollowTheReader(t *testing.T) {
	r := newRig(t, Config{Window: 1 << 16, ConnWindow: 200_000, Streams: 1})
	r.greet()
	r.write(headers(1, getBlock, false))
	piece := strings.Repeat("x", 16000)
	for range 4 {
		r.write(data(1, piece, false))
	}
	r.wantNothing()
	s := r.conn.streams[1]
	p := make([]byte, 40000)
	n, tell, _ := s.in.Read(p)
	if !tell {
		t.Fatal("reading more than half of the window tells nothing")
	}
	s.Notify()
	if r.want("WINDOW_UPDATE 1 40000"); n != 40000 {
		t.Errorf("read %d", n)
	}
	s.in.Read(p)
	s.Notify()
	r.want("WINDOW_UPDATE 0 64000") // half of the connection's; the stream's has not come to half of its own
	r.wantNothing()
	s.Cancel(h2.Cancel)
	r.want("RST_STREAM 1 CANCEL")
}

func TestOutputObeysWindows(t *testing.T) {
	r := newRig(t, Config{Outbox: 1 << 20})
	r.greet(h2.Setting{ID: h2.InitialWindowSize, Value: 10})
	r.on = func(s *testStream, _ *h2.Head, _ bool) { reply(s, strings.Repeat("x", 30)) }
	r.write(headers(1, getBlock, true))
	r.want("HEADERS 1 :status=200")
	r.want(`DATA 1 "xxxxxxxxxx"`)
	r.wantNothing()
	r.write(h2.AppendWindowUpdate(nil, 1, 5))
	r.want(`DATA 1 "xxxxx"`)
	r.wantNothing()
	r.write(h2.AppendSettings(nil, h2.Setting{ID: h2.InitialWindowSize, Value: 3})) // the window is -7 now
	r.want("SETTINGS ACK")
	r.write(h2.AppendWindowUpdate(nil, 1, 7))
	r.wantNothing()
	r.write(h2.AppendWindowUpdate(nil, 1, 1))
	r.want(`DATA 1 "x"`)
	r.wantNothing()
	r.write(h2.AppendWindowUpdate(nil, 1, 1000))
	r.want(`DATA 1 "xxxxxxxxxxxxxx" END`)
}

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
