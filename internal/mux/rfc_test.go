package mux

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/h2"
)

// Rules of RFC 9113 that rules_test.go has no place for. RULES.md lists them all.

// Section 3.4, at a client: the server's SETTINGS come first, and in time.
func TestClientPreface(t *testing.T) {
	for _, v := range []violation{
		{"no SETTINGS", send(h2.AppendPing(nil, [8]byte{}, false)), []string{"GOAWAY 0 PROTOCOL_ERROR"}},
		{"an ACK first", send(h2.AppendSettingsAck(nil)), []string{"GOAWAY 0 PROTOCOL_ERROR"}},
		{"HTTP/1.1", send([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")),
			[]string{"GOAWAY 0 PROTOCOL_ERROR"}},
		{"nothing in time", func(r *rig) { r.RunFor(handshakeTimeout) }, []string{"GOAWAY 0 SETTINGS_TIMEOUT"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			r := newRig(t, Config{Client: true})
			r.settle()
			r.in = append(r.in, r.peer.TakeReceived()...)
			if !bytes.HasPrefix(r.in, []byte(h2.Preface)) {
				t.Fatalf("our end begins with %q", r.in)
			}
			r.in = r.in[len(h2.Preface):]
			r.want("SETTINGS")
			r.want("WINDOW_UPDATE 0")
			r.check(v)
		})
	}
}

// Section 6.5.3: the ACK of a client on a slow uplink comes behind the body that it sends. It has
// time as long as something comes.
func TestLateAckBehindABody(t *testing.T) {
	r := newRig(t, Config{})
	r.write([]byte(h2.Preface), h2.AppendSettings(nil), headers(1, getBlock, false))
	for range 30 {
		r.write(data(1, strings.Repeat("x", 1000), false))
		r.RunFor(handshakeTimeout / 2)
	}
	if r.conn.state == failed {
		t.Fatal("the connection has been ended")
	}
	r.write(h2.AppendSettingsAck(nil))
	r.RunFor(10 * handshakeTimeout)
	if r.conn.state == failed || r.conn.peer.awaited != handshakeDone {
		t.Error("the connection has been ended behind the ACK")
	}
}

// A server that acknowledges SETTINGS with its first response, or never, is a good one: a request
// may take longer than any handshake.
func TestClientWaitsForTheACK(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.write(h2.AppendSettings(nil))
	r.RunFor(100 * handshakeTimeout)
	if r.conn.state == failed || r.conn.peer.awaited == handshakeDone {
		t.Error("the connection has been ended")
	}
}

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

// Section 6.5.2: what each role says of itself.
func TestOurSettings(t *testing.T) {
	for _, client := range []bool{false, true} {
		r := newRig(t, Config{Client: client, Connect: true})
		r.greet()
		has := map[h2.SettingID]uint32{}
		for _, s := range r.cfg.settings() {
			has[s.ID] = s.Value
		}
		push, sets := has[h2.EnablePush]
		if sets != client || push != 0 { // a server must not say 1
			t.Errorf("client %v: ENABLE_PUSH %d, said: %v", client, push, sets)
		}
		for _, id := range []h2.SettingID{h2.MaxConcurrentStreams, h2.NoRFC7540Priorities, h2.EnableConnectProtocol} {
			if _, sets := has[id]; sets == client {
				t.Errorf("client %v: setting %d, said: %v", client, id, sets)
			}
		}
		if has[h2.InitialWindowSize] == 0 || has[h2.MaxHeaderListSize] == 0 {
			t.Errorf("client %v: %v", client, has)
		}
	}
}

// RFC 8441 section 3: a client knows whether the server offers the extended CONNECT.
func TestPeerConnect(t *testing.T) {
	for value := range uint32(2) {
		r := newRig(t, Config{Client: true})
		if r.conn.PeerConnect() {
			t.Error("it is offered before SETTINGS")
		}
		r.greet(h2.Setting{ID: h2.EnableConnectProtocol, Value: value})
		if r.conn.PeerConnect() != (value == 1) {
			t.Errorf("ENABLE_CONNECT_PROTOCOL %d: offered %v", value, r.conn.PeerConnect())
		}
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

// Section 6.9: in both roles DATA keeps to the window of the stream and to that of the connection.
// A setting changes the first, also to below zero, and not the second (6.9.2).
func TestDataObeysBothWindows(t *testing.T) {
	const size = 200_000
	for _, client := range []bool{false, true} {
		r := newRig(t, Config{Client: client, Outbox: size})
		r.greet(h2.Setting{ID: h2.InitialWindowSize, Value: 1000})
		r.sender(size)
		step := func(what string, want int, frames ...[]byte) {
			t.Helper()
			r.write(frames...)
			if n, end := r.dataSent(); n != want || end {
				t.Errorf("client %v, %s: %d bytes, end %v, want %d", client, what, n, end, want)
			}
		}
		step("the stream's window", 1000)
		step("WINDOW_UPDATE", 500, h2.AppendWindowUpdate(nil, 1, 500))
		step("a setting below what was sent", 0,
			h2.AppendSettings(nil, h2.Setting{ID: h2.InitialWindowSize, Value: 400}))
		step("what is still below zero", 0, h2.AppendWindowUpdate(nil, 1, 600))
		step("and above", 7, h2.AppendWindowUpdate(nil, 1, 7))
		step("a setting up to the connection's window", h2.InitialWindow-1507,
			h2.AppendSettings(nil, h2.Setting{ID: h2.InitialWindowSize, Value: 1 << 30}))
		step("a setting again", 0, h2.AppendSettings(nil, h2.Setting{ID: h2.InitialWindowSize, Value: 1<<30 + 1}))
		step("the connection's WINDOW_UPDATE", 3, h2.AppendWindowUpdate(nil, 0, 3))
		r.write(h2.AppendWindowUpdate(nil, 0, size))
		if n, end := r.dataSent(); n != size-h2.InitialWindow-3 || !end {
			t.Errorf("client %v: %d bytes at last, end %v", client, n, end)
		}
	}
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

// Section 7: codes that are unknown end what they say as others do.
func TestUnknownCodes(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.greet()
	r.request(true)
	r.request(true)
	r.want("HEADERS 1")
	r.want("HEADERS 3")
	r.write(h2.AppendReset(nil, 1, 0xf00), h2.AppendGoAway(nil, 1, 0xf01, "debug"))
	r.wantLog("1 ended code 0xf00, error true", "3 ended REFUSED_STREAM, error true", "goaway 1 code 0xf01")
}

// Section 6.8: a second GOAWAY may name fewer streams.
func TestSecondGoAway(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.greet()
	for range 3 {
		r.request(true)
	}
	r.write(h2.AppendGoAway(nil, 1<<31-1, h2.NoError, ""))
	r.wantLog("goaway 2147483647 NO_ERROR")
	r.write(h2.AppendGoAway(nil, 3, h2.NoError, ""))
	r.wantLog("5 ended REFUSED_STREAM, error true", "goaway 3 NO_ERROR")
	r.write(h2.AppendGoAway(nil, 1, h2.InternalError, ""))
	r.wantLog("3 ended REFUSED_STREAM, error true", "goaway 1 INTERNAL_ERROR")
	r.write(headers(1, block(":status", "200"), true))
	r.wantLog("1 head 200  last true", "1 ended NO_ERROR, error false")
}

// Section 6.8, at a server: a client that goes away has its requests answered, and then the
// connection closes.
func TestClientGoesAway(t *testing.T) {
	r := newRig(t, Config{})
	r.greet()
	r.write(headers(1, getBlock, true), h2.AppendGoAway(nil, 0, h2.NoError, ""))
	r.wantLog("1 head GET / last true", "goaway 0 NO_ERROR")
	if r.peer.Ended() {
		t.Error("the connection is closed before the answer")
	}
	reply(r.conn.streams[1], "answer")
	r.want("HEADERS 1 :status=200")
	r.want(`DATA 1 "answer" END`)
	r.settle()
	if !r.peer.Ended() {
		t.Error("the connection is open behind the answer")
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

// Section 5.1.2: a server that allows no stream gets none, until it does.
func TestNoStreamIsAllowed(t *testing.T) {
	r := newRig(t, Config{Client: true})
	r.greet(h2.Setting{ID: h2.MaxConcurrentStreams, Value: 0})
	r.openAll(0, ErrStreams)
	r.write(h2.AppendSettings(nil, h2.Setting{ID: h2.MaxConcurrentStreams, Value: 1}))
	r.settle()
	r.openAll(1, ErrStreams)
}

// Section 6.9.1: a peer that sends more than the stream's window loses the stream, and more than
// the connection's window the connection.
func TestPeerBeyondItsWindows(t *testing.T) {
	const window = 1 << 16 // more than the initial one, to which the connection's cannot be reduced
	for _, client := range []bool{false, true} {
		for name, end := range map[string]string{"stream": "RST_STREAM 1 FLOW_CONTROL_ERROR", "connection": "GOAWAY"} {
			cfg := Config{Client: client, Window: window, ConnWindow: 2 * window, Streams: 2}
			if name == "connection" {
				cfg.Window, cfg.ConnWindow = 4*window, window
			}
			r := newRig(t, cfg)
			r.greet()
			if client {
				r.request(true)
				r.want("HEADERS 1 ")
				r.write(headers(1, okBlock, false))
			} else {
				r.write(headers(1, getBlock, false))
			}
			left := window
			if name == "connection" {
				left = r.cfg.ConnWindow
			}
			for ; left > 0; left -= 1 << 13 {
				r.write(data(1, strings.Repeat("x", 1<<13), false))
			}
			r.wantNothing()
			r.write(data(1, "x", false))
			r.want(end)
		}
	}
}
