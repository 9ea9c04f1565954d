package mux

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/myriad-go/myriad/internal/flow"
	"github.com/myriad-go/myriad/internal/h2"
)

// Section 6.8: first the peer learns that the connection ends, then which streams are answered. One
// that it has opened in between is.
func TestServerShutdown(t *testing.T) {
	r := newRig(t, Config{})
	r.greet()
	r.write(headers(1, getBlock, true))
	r.settle()
	r.onLoop(r.conn.Shutdown)
	r.want("GOAWAY 2147483647 NO_ERROR")
	r.want("PING")
	r.write(headers(3, getBlock, true), h2.AppendPing(nil, drainPing, true))
	r.want("GOAWAY 3 NO_ERROR")
	r.write(headers(5, getBlock, false), data(5, "abc", false)) // not processed, and not an error
	r.wantNothing()
	if r.conn.streams[5] != nil || r.peer.Ended() {
		t.Errorf("stream 5 was accepted, or the connection is closed: %v", r.peer.Ended())
	}
	reply(r.conn.streams[1], "one")
	reply(r.conn.streams[3], "three")
	r.want("HEADERS 1")
	r.want("HEADERS 3")
	r.sent()
	if !r.peer.Ended() {
		t.Error("the connection is not closed after the last stream")
	}
}

func TestShutdownWithoutAnswer(t *testing.T) {
	r := newRig(t, Config{})
	r.greet()
	r.write(headers(1, getBlock, false))
	r.settle()
	r.onLoop(r.conn.Shutdown)
	r.sent()
	r.RunFor(drainTimeout)
	r.want("GOAWAY 1 NO_ERROR")
	r.write(headers(3, getBlock, true), frame(h2.Ping, 0, 3, "12345678"))
	r.want("GOAWAY 1 PROTOCOL_ERROR") // the number does not rise
}

func TestShutdownOfAnIdleConnection(t *testing.T) {
	r := newRig(t, Config{})
	r.greet()
	r.onLoop(r.conn.Shutdown)
	r.write(h2.AppendPing(nil, drainPing, true))
	r.settle()
	if !r.peer.Ended() {
		t.Error("the connection is not closed")
	}
}

// A client retries what a GOAWAY says was not processed; the other streams go on.
func TestClientGoAway(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.greet()
	for range 3 {
		r.request(true)
	}
	r.sent()
	r.write(h2.AppendGoAway(nil, 3, h2.NoError, ""))
	r.wantLog("5 ended REFUSED_STREAM, error true", "goaway 3 NO_ERROR")
	s := new(testStream)
	s.Init(s)
	r.onLoop(func() {
		if err := r.conn.Open(&s.Stream); err != ErrGoingAway {
			t.Errorf("Open: %v", err)
		}
	})
	r.write(headers(1, block(":status", "200"), true), headers(3, block(":status", "204"), true))
	r.wantLog("1 head 200  last true", "1 ended NO_ERROR, error false", "3 head 204  last true",
		"3 ended NO_ERROR, error false")
}

// A client's streams get their numbers in the order in which heads leave, not in which they were
// opened; and no more are open than the server allows.
func TestClientNumbers(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.greet(h2.Setting{ID: h2.MaxConcurrentStreams, Value: 2})
	a, b, c := &testStream{r: r}, &testStream{r: r}, &testStream{r: r}
	r.onLoop(func() {
		for i, s := range []*testStream{a, b, c} {
			s.Init(s)
			if err := r.conn.Open(&s.Stream); (err == ErrStreams) != (i == 2) {
				t.Errorf("Open: %v", err)
			}
		}
	})
	head := func(path string) []byte {
		return pairs(":method", "GET", ":scheme", "http", ":authority", "h", ":path", path)
	}
	b.Put(head("/b"), nil, true)
	a.Put(head("/a"), nil, true)
	r.want("HEADERS 1 :method=GET :scheme=http :authority=h :path=/b END")
	r.want("HEADERS 3 :method=GET :scheme=http :authority=h :path=/a END")
	a.Cancel(h2.Cancel)
	r.want("RST_STREAM 3 CANCEL")
}

// A stream that is cancelled before its head has left was never there.
func TestClientCancelsBeforeTheHead(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.greet()
	s := &testStream{r: r}
	s.Init(s)
	r.onLoop(func() { _ = r.conn.Open(&s.Stream); s.Cancel(h2.Cancel) })
	r.wantLog("0 ended CANCEL, error true")
	r.wantNothing()
	r.request(true)
	r.want("HEADERS 1")
}

// Section 8.1: a server that has answered before the request was complete says that it needs no
// more, also a CONNECT that was refused. A tunnel's sides end by themselves (section 8.5).
func TestAnswerBeforeTheRequestEnds(t *testing.T) {
	r := newRig(t, Config{Connect: true})
	r.greet()
	r.write(headers(1, getBlock, false))
	r.settle()
	reply(r.conn.streams[1], "early")
	r.want("HEADERS 1")
	r.want(`DATA 1 "early" END`)
	r.want("RST_STREAM 1 NO_ERROR")
	r.write(data(1, "late", true))
	r.wantNothing()
	r.wantLog("1 head GET / last false", "1 ended NO_ERROR, error false")

	for _, id := range []uint32{3, 5} {
		r.write(headers(id, block(":method", "CONNECT", ":protocol", "websocket", ":scheme", "https",
			":authority", "h", ":path", "/"), false))
		r.settle()
		s := r.conn.streams[id]
		if s.head.Protocol != "websocket" {
			t.Errorf("%+v", s.head)
		}
		if id == 3 {
			r.onLoop(s.Tunnel)
		}
		reply(s, "")
		r.want(fmt.Sprintf("HEADERS %d :status=200 END", id))
	}
	r.want("RST_STREAM 5 NO_ERROR")
	r.wantNothing()
	r.write(data(3, "more", true))
	r.wantLog("3 head CONNECT / last false", "5 head CONNECT / last false", "5 ended NO_ERROR, error false",
		"3 ended NO_ERROR, error false")
}

// Section 8.1: a reset does not take back what has been received before it.
func TestResetAfterTheEnd(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.greet()
	s := r.request(false)
	r.write(headers(1, block(":status", "200"), false), data(1, "whole", true), h2.AppendReset(nil, 1, h2.NoError))
	r.wantLog("1 head 200  last false", "1 ended NO_ERROR, error true")
	if !s.in.Complete() {
		t.Error("the response is not complete")
	}
	if err := s.Put(nil, []byte("a"), false); err == nil {
		t.Error("the stream still takes bytes")
	}
}

// The end of the peer's side lets complete requests be answered, and fails the others.
func TestHalfClosedConnection(t *testing.T) {
	r := newRig(t, Config{})
	r.greet()
	r.write(headers(1, getBlock, true), headers(3, getBlock, false))
	r.settle()
	r.peer.CloseWrite()
	r.settle()
	r.wantLog("1 head GET / last true", "3 head GET / last false", "3 ended CANCEL, error true")
	reply(r.conn.streams[1], "answer")
	r.conn.streams[3].Release()
	r.want("HEADERS 1")
	r.want(`DATA 1 "answer" END`)
	r.settle()
	if !r.peer.Ended() {
		t.Error("the connection is not closed")
	}
}

// A peer that has closed the connection looks like one that has ended its side. What is not
// answered soon ends with the connection, whether its window is open or not.
func TestPeerThatHasClosed(t *testing.T) {
	for _, window := range []uint32{0, h2.InitialWindow} {
		r := newRig(t, Config{})
		r.greet(h2.Setting{ID: h2.InitialWindowSize, Value: window})
		r.write(headers(1, getBlock, true), headers(3, getBlock, true))
		r.settle()
		if window == 0 {
			reply(r.conn.streams[3], "answer")
		}
		r.peer.CloseWrite()
		r.RunFor(endedTimeout / 2)
		r.log = nil
		r.RunFor(endedTimeout)
		r.wantLog("1 ended CANCEL, error true", "3 ended CANCEL, error true")
		if !r.conn.gone || !r.peer.Ended() {
			t.Error("the connection is not closed")
		}
	}
}

// An idle connection keeps its windows and its table, and forgets which streams it has reset: what
// comes for them is ignored.
func TestDoze(t *testing.T) {
	r := newRig(t, Config{})
	r.greet()
	indexed := append(get(), 0x40, 1, 'k', 1, 'v')
	r.write(headers(1, indexed, false))
	r.settle()
	r.conn.streams[1].Cancel(h2.Cancel)
	r.conn.streams[1].Release()
	r.want("RST_STREAM 1 CANCEL")
	r.RunFor(2 * dozeAfter)
	if r.conn.act != nil || len(r.conn.table) == 0 || len(r.conn.table) > 16 {
		t.Errorf("active %v, a table of %d bytes", r.conn.act != nil, len(r.conn.table))
	}
	r.write(data(1, "late", false), headers(1, block("a", "b"), true), headers(3, append(get(), 0xbe), true))
	r.wantNothing()
	if s := r.conn.streams[3]; len(s.head.Fields) != 1 || s.head.Fields[0].Name != "k" {
		t.Errorf("%+v", s.head)
	}
	reply(r.conn.streams[3], "")
	r.want("HEADERS 3 :status=200 END")
	if n := unsafe.Sizeof(r.conn.Conn); n > 256 {
		t.Errorf("an idle connection takes %d bytes", n)
	}
}

// Of many streams that were reset, only the last are known; the others are ignored, too.
func TestManyResets(t *testing.T) {
	r := newRig(t, Config{Streams: 100})
	r.greet()
	for i := range 2 * keptResets {
		r.write(headers(id(i), getBlock, false))
	}
	r.settle()
	for i := range 2 * keptResets {
		r.conn.streams[id(i)].Cancel(h2.Cancel)
	}
	if n := len(r.sent()); n != 2*keptResets {
		t.Fatalf("%d frames", n)
	}
	for i := range 2 * keptResets {
		r.write(headers(id(i), block("a", "b"), true))
	}
	r.wantNothing()
	if n := len(r.conn.act.resets); n > keptResets {
		t.Errorf("%d are kept", n)
	}
}

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

func TestOutboxRoom(t *testing.T) {
	r := newRig(t, Config{Outbox: 1000})
	r.greet(h2.Setting{ID: h2.InitialWindowSize, Value: 0})
	r.write(headers(1, getBlock, true))
	r.settle()
	s := r.conn.streams[1]
	s.Put(pairs(":status", "200"), make([]byte, 900), false)
	if err := s.Put(nil, make([]byte, 900), true); !errors.Is(err, flow.ErrFull) {
		t.Errorf("Put: %v", err)
	}
	r.sent()
	r.write(h2.AppendWindowUpdate(nil, 1, 300))
	if r.sent(); s.room != 0 {
		t.Error("Room was called above half of the limit")
	}
	r.write(h2.AppendWindowUpdate(nil, 1, 200))
	if r.sent(); s.room != 1 {
		t.Errorf("Room was called %d times", s.room)
	}
}

// An owner that refuses, and one that ends the connection in a callback.
func TestOwnerRefuses(t *testing.T) {
	r := newRig(t, Config{})
	r.greet()
	r.refuse = true
	r.write(headers(1, getBlock, true))
	r.want("RST_STREAM 1 REFUSED_STREAM")
	r.refuse = false
	r.on = func(*testStream, *h2.Head, bool) { r.conn.Abort(h2.InadequateSecurity, "weak") }
	r.write(headers(3, getBlock, true), headers(5, getBlock, true))
	r.want("GOAWAY 3 INADEQUATE_SECURITY")
	r.wantLog("3 head GET / last true", "3 ended INADEQUATE_SECURITY, error true")
	r.RunFor(time.Second)
	if !r.peer.Ended() {
		t.Error("the connection is not closed")
	}
}

// What is left of a connection that breaks ends with the reason.
func TestConnectionBreaks(t *testing.T) {
	r := newRig(t, Config{})
	r.greet()
	r.write(headers(1, getBlock, false), data(1, "abc", false))
	r.settle()
	r.peer.Reset()
	r.settle()
	r.wantLog("1 head GET / last false", "1 ended CANCEL, error true")
	if !r.conn.gone || r.conn.err == nil || errors.Is(r.conn.err, io.EOF) {
		t.Errorf("Gone: %v, %v", r.conn.gone, r.conn.err)
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
	if s.in.State().Unread != 1<<15 || !s.in.Complete() || r.conn.act.partial != nil {
		t.Errorf("%d bytes have come, complete: %v; %v is kept", s.in.State().Unread, s.in.Complete(),
			r.conn.act.partial)
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
