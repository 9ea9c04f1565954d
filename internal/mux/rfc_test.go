package mux

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/h2"
)

// Rules of RFC 9113 that the tables of testdata have no place for. RULES.md lists them all.

// Without the preface whole, or the ACK, single bytes buy no time.
func TestSlowPreface(t *testing.T) {
	r := newRig(t, Config{})
	first := append([]byte(h2.Preface), h2.AppendSettings(nil)...)
	for i := 0; i < len(first)-1 && r.conn.state != failed; i++ {
		r.write(first[i : i+1])
		r.RunFor(time.Second)
	}
	if r.conn.state != failed {
		t.Error("the connection goes on")
	}
}

// sender has a stream that sends size bytes of a body: an answer, at a client an upload.
func (r *rig) sender(size int) *testStream {
	r.t.Helper()
	if r.cfg.Client {
		s := r.request(false)
		r.want("HEADERS 1 ")
		s.SetLimit(size)
		if err := s.Put(nil, make([]byte, size), true); err != nil {
			r.t.Error(err)
		}
		return s
	}
	r.write(headers(1, getBlock, true))
	r.settle()
	s := r.conn.streams[1]
	if err := s.Put(pairs(":status", "200"), make([]byte, size), true); err != nil {
		r.t.Error(err)
	}
	r.want("HEADERS 1 ")
	return s
}

// dataSent is how many bytes of DATA have come, and whether the stream has ended.
func (r *rig) dataSent() (n int, end bool) {
	r.t.Helper()
	for _, f := range r.sent() {
		if !strings.HasPrefix(f, "DATA 1 ") {
			continue
		}
		end = strings.HasSuffix(f, " END")
		var k int
		if _, err := fmt.Sscanf(f, "DATA 1 %d bytes", &k); err == nil {
			n += k
			continue
		}
		var p string
		if _, err := fmt.Sscanf(f, "DATA 1 %q", &p); err != nil {
			r.t.Fatal(f)
		}
		n += len(p)
	}
	return n, end
}

// Section 4.2: no frame is larger than any peer takes, whatever this one allows. A field block that
// is larger continues without a frame in between (6.10).
func TestFramesFitEveryPeer(t *testing.T) {
	for _, client := range []bool{false, true} {
		r := newRig(t, Config{Client: client, Outbox: 1 << 20})
		r.greet(h2.Setting{ID: h2.MaxFrameSizeSetting, Value: 1 << 20},
			h2.Setting{ID: h2.InitialWindowSize, Value: 1 << 20})
		fields := []string{":status", "200"}
		if client {
			fields = []string{":method", "POST", ":scheme", "http", ":authority", "h", ":path", "/"}
		}
		head := pairs(append(fields, "x", strings.Repeat("\x7f\x7e", 50_000))...)
		var s *testStream
		if client {
			s = &testStream{r: r}
			s.Init(s)
			r.onLoop(func() { _ = r.conn.Open(&s.Stream) })
		} else {
			r.write(headers(1, getBlock, true))
			r.settle()
			s = r.conn.streams[1]
		}
		if err := s.Put(head, make([]byte, 60_000), true); err != nil {
			t.Fatal(err)
		}
		r.write(frame(h2.Ping, 0, 0, "12345678"))
		r.settle()
		var types []h2.Type
		for p := r.peer.TakeReceived(); len(p) > 0; {
			n, f, err := h2.ParseFrame(p, h2.MinFrameSize)
			if err != nil || n == 0 {
				t.Fatalf("client %v: %v behind %v", client, err, types)
			}
			if types = append(types, f.Type); f.Type == h2.Continuation && f.Has(h2.EndHeaders) {
				types = append(types, h2.Headers)
			}
			p = p[n:]
		}
		first := slices.Index(types, h2.Headers)
		last := first + 1 + slices.Index(types[first+1:], h2.Headers)
		for _, kind := range types[first+1 : last] {
			if kind != h2.Continuation {
				t.Errorf("client %v: %v in a field block", client, types)
			}
		}
		if last-first < 6 {
			t.Errorf("client %v: a block of %d frames shows nothing", client, last-first)
		}
	}
}

// RFC 7541 section 4.2: our encoder has no table. Its first block says so, and the next one after
// each change of the peer's setting.
func TestTheTableIsForgotten(t *testing.T) {
	r := newRig(t, Config{})
	r.greet()
	r.on = func(s *testStream, _ *h2.Head, _ bool) { reply(s, "") }
	for i, update := range []bool{true, false, true, false} {
		if i == 2 {
			r.write(h2.AppendSettings(nil, h2.Setting{ID: h2.HeaderTableSize, Value: 100}))
			r.want("SETTINGS ACK")
		}
		r.write(headers(id(i), getBlock, true))
		r.settle()
		_, f, err := h2.ParseFrame(r.peer.TakeReceived(), h2.MinFrameSize)
		if err != nil || f.Type != h2.Headers || (f.Data[0] == 0x20) != update {
			t.Errorf("block %d: %v, %+v", i, err, f)
		}
	}
}

// Section 6.7: a PING is answered before the data that waits.
func TestAnswersToPingOvertakeData(t *testing.T) {
	r := newRig(t, Config{Outbox: 1 << 20, Ahead: 16 << 10})
	r.greet(h2.Setting{ID: h2.InitialWindowSize, Value: 1 << 20})
	r.write(h2.AppendWindowUpdate(nil, 0, 1<<20), headers(1, getBlock, true))
	r.settle()
	r.peer.StopReading()
	if err := r.conn.streams[1].Put(pairs(":status", "200"), make([]byte, 1<<20), true); err != nil {
		t.Fatal(err)
	}
	r.settle()
	r.write(frame(h2.Ping, 0, 0, "12345678"))
	r.settle()
	r.peer.Resume()
	all := r.sent()
	i := slices.Index(all, "PING ACK 12345678")
	if i < 0 || i > len(all)*2/3 {
		t.Errorf("PING is answered by frame %d of %d", i, len(all))
	}
}
