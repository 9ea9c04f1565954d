package websocket

import (
	"bytes"
	"fmt"
	"math"
	"testing"
)

// The examples of RFC 6455 §5.7, and every form of the length.
func TestParseHeader(t *testing.T) {
	for _, c := range []struct {
		name       string
		wire       string
		fromClient bool
		want       frameHeader
	}{
		{"unmasked text", "\x81\x05", false, frameHeader{fin: true, op: OpText, length: 5}},
		{"masked text", "\x81\x85\x37\xfa\x21\x3d", true,
			frameHeader{fin: true, op: OpText, masked: true, key: 0x3d21fa37, length: 5}},
		{"first fragment", "\x01\x03", false, frameHeader{op: OpText, length: 3}},
		{"last fragment", "\x80\x02", false, frameHeader{fin: true, length: 2}},
		{"ping", "\x89\x05", false, frameHeader{fin: true, op: OpPing, length: 5}},
		{"pong", "\x8a\x7d", false, frameHeader{fin: true, op: OpPong, length: 125}},
		{"empty close", "\x88\x00", false, frameHeader{fin: true, op: OpClose}},
		{"256 bytes", "\x82\x7e\x01\x00", false, frameHeader{fin: true, op: OpBinary, length: 256}},
		{"least of 16 bits", "\x82\x7e\x00\x7e", false, frameHeader{fin: true, op: OpBinary, length: 126}},
		{"most of 16 bits", "\x82\x7e\xff\xff", false, frameHeader{fin: true, op: OpBinary, length: 65535}},
		{"least of 64 bits", "\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00", false,
			frameHeader{fin: true, op: OpBinary, length: 65536}},
		{"most of 64 bits", "\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x01\x02\x03\x04", true,
			frameHeader{fin: true, op: OpBinary, masked: true, key: 0x04030201, length: math.MaxInt64}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for short := range len(c.wire) {
				if n, _, err := parseHeader([]byte(c.wire[:short]), c.fromClient, false); n != 0 || err != nil {
					t.Fatalf("%d of %d bytes: got %d, %v, want a call for more", short, len(c.wire), n, err)
				}
			}
			n, h, err := parseHeader([]byte(c.wire+"payload"), c.fromClient, false)
			if err != nil || n != len(c.wire) || h != c.want {
				t.Fatalf("got %d, %+v, %v, want %d, %+v", n, h, err, len(c.wire), c.want)
			}
			if back := appendHeader(nil, h); string(back) != c.wire || headerSize(h.length, h.masked) != len(back) {
				t.Fatalf("encoded as %x (said to take %d), want %x", back, headerSize(h.length, h.masked), c.wire)
			}
		})
	}
}

// Each header is refused with its last byte here and not before: what is wrong is known then.
func TestParseHeaderRefuses(t *testing.T) {
	for _, c := range []struct {
		name, wire  string
		fromClient  bool
		compression bool
	}{
		{name: "rsv1", wire: "\xc1"},
		{name: "rsv2", wire: "\xa1"},
		{name: "rsv3", wire: "\x91"},
		{name: "rsv2 with compression", wire: "\xe1", compression: true},
		{name: "rsv1 on a continuation", wire: "\xc0", compression: true},
		{name: "rsv1 on a ping", wire: "\xc9", compression: true},
		{name: "opcode 3", wire: "\x83"},
		{name: "opcode 7", wire: "\x87"},
		{name: "opcode 11", wire: "\x8b"},
		{name: "opcode 15", wire: "\x8f"},
		{name: "fragmented ping", wire: "\x09"},
		{name: "fragmented close", wire: "\x08"},
		{name: "ping of 126 bytes", wire: "\x89\x7e"},
		{name: "close of 64-bit length", wire: "\x88\x7f"},
		{name: "no mask from a client", wire: "\x81\x05", fromClient: true},
		{name: "mask from a server", wire: "\x81\x85"},
		{name: "125 in 16 bits", wire: "\x82\x7e\x00\x7d"},
		{name: "65535 in 64 bits", wire: "\x82\x7f\x00\x00\x00\x00\x00\x00\xff\xff"},
		{name: "top bit of 64", wire: "\x82\x7f\x80\x00\x00\x00\x00\x01\x00\x00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			last := len(c.wire) - 1
			if n, _, err := parseHeader([]byte(c.wire[:last]), c.fromClient, c.compression); n != 0 || err != nil {
				t.Fatalf("%x: got %d, %v before the wrong byte", c.wire[:last], n, err)
			}
			n, h, err := parseHeader([]byte(c.wire), c.fromClient, c.compression)
			if n != 0 || h != (frameHeader{}) || CloseStatus(err) != StatusProtocolError {
				t.Fatalf("%x: got %d, %+v, %v, want a protocol error", c.wire, n, h, err)
			}
		})
	}
}

func TestParseHeaderCompression(t *testing.T) {
	for _, first := range []byte{0xc1, 0x42} {
		n, h, err := parseHeader([]byte{first, 0}, false, true)
		if n != 2 || err != nil || !h.rsv1 {
			t.Errorf("%#x with compression: got %d, %+v, %v", first, n, h, err)
		}
		if back := appendHeader(nil, h); back[0] != first {
			t.Errorf("%#x encoded as %#x", first, back[0])
		}
	}
}

func TestAppendFrame(t *testing.T) {
	hello := []byte("Hello")
	for _, c := range []struct {
		h    frameHeader
		want string
	}{
		{frameHeader{fin: true, op: OpText}, "\x81\x05Hello"},
		{frameHeader{fin: true, op: OpText, masked: true, key: 0x3d21fa37},
			"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"},
	} {
		if got := appendFrame([]byte(">"), c.h, hello); string(got) != ">"+c.want {
			t.Errorf("got %x, want %x after what was there", got, c.want)
		}
	}
	if string(hello) != "Hello" {
		t.Errorf("the caller's payload became %q", hello)
	}
}

func TestOpString(t *testing.T) {
	got := fmt.Sprint(opContinuation, OpText, OpBinary, OpClose, OpPing, OpPong, Op(3))
	if want := "continuation text binary close ping pong reserved"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FuzzHeader holds that a header which parses is encoded to the same bytes (so there is one form
// for each), and that no prefix of it is taken for a header or for an error.
func FuzzHeader(f *testing.F) {
	f.Add([]byte("\x81\x85\x37\xfa\x21\x3d"), true, false)
	f.Add([]byte("\x82\x7e\x01\x00"), false, false)
	f.Add([]byte("\xc2\xff\x00\x00\x00\x00\x00\x01\x00\x00\x01\x02\x03\x04"), true, true)
	f.Fuzz(func(t *testing.T, p []byte, fromClient, compression bool) {
		n, h, err := parseHeader(p, fromClient, compression)
		if err != nil {
			if n != 0 || CloseStatus(err) != StatusProtocolError {
				t.Fatalf("%x: refused with %d, %v", p, n, err)
			}
			return
		}
		if n == 0 {
			if len(p) >= maxHeader {
				t.Fatalf("%x: wants more than the longest header", p)
			}
			return
		}
		if back := appendHeader(nil, h); !bytes.Equal(back, p[:n]) {
			t.Fatalf("%x: encoded as %x", p[:n], back)
		}
		for short := range n {
			if k, _, err := parseHeader(p[:short], fromClient, compression); k != 0 || err != nil {
				t.Fatalf("%x: got %d, %v from a prefix", p[:short], k, err)
			}
		}
	})
}

func BenchmarkParseHeader(b *testing.B) {
	for _, wire := range []string{"\x81\x85\x37\xfa\x21\x3d", "\x82\xfe\x01\x00\x01\x02\x03\x04"} {
		b.Run(fmt.Sprint(len(wire)), func(b *testing.B) {
			p := []byte(wire)
			for b.Loop() {
				if n, _, err := parseHeader(p, true, false); n != len(wire) || err != nil {
					b.Fatal(n, err)
				}
			}
		})
	}
}
