package websocket

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/buf"
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

var serverRules = readRules{fromClient: true, limit: 1 << 20}

const testKey = 0x3d21fa37

// clientFrame is one masked frame.
func clientFrame(fin bool, op Op, payload string) string {
	return string(appendFrame(nil, frameHeader{fin: fin, op: op, masked: true, key: testKey}, []byte(payload)))
}

// transcript feeds the pieces to a reader and tells what it returned, line by line. Views and
// blocks are copied and then overwritten, so that a later message that still leaned on them would
// show.
func transcript(t testing.TB, rules *readRules, pieces ...[]byte) (lines []string) {
	t.Helper()
	r := reader{rules: rules}
	defer r.release()
	for _, piece := range pieces {
		p := bytes.Clone(piece)
		for len(p) > 0 {
			n, m, err := r.feed(p)
			if n == 0 && err == nil {
				t.Fatalf("feed took none of %d bytes", len(p))
			}
			if m.op != opContinuation {
				lines = append(lines, describe(m.op, m.compressed, m.payload))
				m.release()
			}
			if err != nil {
				lines = append(lines, fmt.Sprintf("fail %d", CloseStatus(err)))
			}
			if m.op == opContinuation && err == nil && n != len(p) {
				t.Fatalf("feed returned nothing and took %d of %d bytes", n, len(p))
			}
			fill(p[:n], 0xdb)
			p = p[n:]
		}
	}
	return lines
}

func describe(op Op, compressed bool, payload []byte) string {
	if compressed {
		return fmt.Sprintf("compressed %v %q", op, payload)
	}
	return fmt.Sprintf("%v %q", op, payload)
}

func fill(p []byte, b byte) {
	for i := range p {
		p[i] = b
	}
}

func oneByOne(p []byte) (pieces [][]byte) {
	for i := range p {
		pieces = append(pieces, p[i:i+1])
	}
	return pieces
}

func cutAtRandom(rng *rand.Rand, p []byte) (pieces [][]byte) {
	for len(p) > 0 {
		n := 1 + rng.IntN(len(p))
		if rng.IntN(2) == 0 {
			n = 1 + rng.IntN(min(len(p), 16))
		}
		pieces = append(pieces, p[:n])
		p = p[n:]
	}
	return pieces
}

// wantTranscript holds that whole, byte by byte and cut at random the input gives the same lines.
func wantTranscript(t *testing.T, rules *readRules, wire []byte, want []string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(len(wire)), 5))
	for name, pieces := range map[string][][]byte{
		"whole":       {wire},
		"byte a time": oneByOne(wire),
		"cut":         cutAtRandom(rng, wire),
	} {
		if got := transcript(t, rules, pieces...); !slices.Equal(got, want) {
			t.Fatalf("%s: got %.300q\nwant %.300q\nfor %.200x", name, got, want, wire)
		}
	}
}

// randomSession is a client's stream of frames, mostly in order. Now and then it does what is
// forbidden.
func randomSession(rng *rand.Rand, compression bool) (wire []byte) {
	open := opContinuation
	for range 1 + rng.IntN(12) {
		h := frameHeader{fin: rng.IntN(2) == 0, op: OpText + Op(rng.IntN(2)), masked: true, key: rng.Uint32()}
		payload := randomText(rng, []int{0, 1, 10, 130, 300}[rng.IntN(5)])
		switch rng.IntN(8) {
		case 0, 1:
			h.fin, h.op = true, OpPing+Op(rng.IntN(2))
			payload = payload[:min(len(payload), maxControl)]
		default:
			if open != opContinuation {
				h.op = opContinuation
			}
			h.rsv1 = compression && h.op != opContinuation && rng.IntN(3) == 0
			open = opContinuation
			if !h.fin {
				open = OpText
			}
		}
		misbehave(rng, &h, payload)
		wire = appendFrame(wire, h, payload)
	}
	if rng.IntN(2) == 0 {
		code := []StatusCode{1000, 1001, 1005, 1006, 4000}[rng.IntN(5)]
		body := append([]byte{byte(code >> 8), byte(code)}, "bye"...)
		wire = appendFrame(wire, frameHeader{fin: true, op: OpClose, masked: true, key: rng.Uint32()},
			body[:rng.IntN(6)])
	}
	return append(wire, clientFrame(true, OpText, "after the end")[:rng.IntN(15)]...)
}

func misbehave(rng *rand.Rand, h *frameHeader, payload []byte) {
	switch rng.IntN(80) {
	case 0:
		h.fin = !h.fin
	case 1:
		h.op = Op(rng.IntN(16))
	case 2:
		h.rsv1 = !h.rsv1
	case 3:
		h.masked = false
	case 4, 5, 6:
		if len(payload) > 0 {
			payload[rng.IntN(len(payload))] = byte(rng.Uint32())
		}
	}
}

func TestReaderRandomSessionsAgreeWithReference(t *testing.T) {
	buf.CheckLeaks(t)
	sessions := 3000
	if testing.Short() {
		sessions = 500
	}
	seen := map[string]int{}
	for seed := range sessions {
		rng := rand.New(rand.NewPCG(uint64(seed), 6))
		rules := readRules{fromClient: true, compression: seed%4 == 0, limit: 600}
		wire := randomSession(rng, rules.compression)
		want := reference(wire, rules)
		t.Run("", func(t *testing.T) { wantTranscript(t, &rules, wire, want) })
		for _, line := range want {
			seen[line[:4]]++
		}
	}
	// The sessions are worth nothing if they all end in their first frame.
	for _, kind := range []string{"text", "bina", "ping", "pong", "clos", "fail", "comp"} {
		if seen[kind] < sessions/10 {
			t.Errorf("only %d lines of %q in %d sessions: %v", seen[kind], kind, sessions, seen)
		}
	}
}

func FuzzReader(f *testing.F) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 7))
		f.Add(randomSession(rng, seed%2 == 0), true, seed%2 == 0, seed)
	}
	f.Add([]byte("\x01\x03Hel\x89\x00\x80\x02lo"), false, false, uint64(0))
	f.Fuzz(func(t *testing.T, wire []byte, fromClient, compression bool, seed uint64) {
		rules := readRules{fromClient: fromClient, compression: compression, limit: 600}
		want := reference(wire, rules)
		rng := rand.New(rand.NewPCG(seed, 8))
		for _, pieces := range [][][]byte{{wire}, oneByOne(wire), cutAtRandom(rng, wire)} {
			if got := transcript(t, &rules, pieces...); !slices.Equal(got, want) {
				t.Fatalf("got %q\nwant %q\nfor %x cut as %x", got, want, wire, pieces)
			}
		}
	})
}

func TestReaderIsSmall(t *testing.T) {
	if size := reflect.TypeFor[reader]().Size(); size > 40 {
		t.Errorf("a reader takes %d bytes in every connection, want at most 40", size)
	}
	r := reader{rules: &serverRules}
	for _, piece := range oneByOne([]byte(clientFrame(false, OpText, "Hel") + clientFrame(true, OpPing, "?") +
		clientFrame(true, opContinuation, "lo") + clientFrame(true, OpPing, "") + clientFrame(true, OpText, ""))) {
		_, m, err := r.feed(piece)
		must(t, err)
		m.release()
	}
	if r.part != nil {
		t.Errorf("between messages the reader still holds %+v", *r.part)
	}
	for _, piece := range oneByOne([]byte(clientFrame(true, OpPing, "again"))) {
		_, m, _ := r.feed(piece)
		m.release()
	}
	if r.part != nil {
		t.Errorf("after a ping the reader still holds %+v", *r.part)
	}
}

// Once nothing can follow, the unfinished message is given back at once and not only when the
// connection has ended.
func TestReaderEndsWithoutMemory(t *testing.T) {
	buf.CheckLeaks(t)
	for _, last := range []string{clientFrame(true, OpClose, ""), clientFrame(true, OpText, "")} {
		r := reader{rules: &serverRules}
		wire := []byte(clientFrame(false, OpBinary, "Hello") + last)
		for len(wire) > 0 {
			n, _, _ := r.feed(wire)
			wire = wire[n:]
		}
		if r.part != over {
			t.Errorf("after %x the reader still holds %+v", last, r.part)
		}
	}
}

// A message whole in what was fed is a view of it, not a copy, and cannot be appended to into its
// successor.
func TestReaderReturnsViews(t *testing.T) {
	r := reader{rules: &serverRules}
	p := []byte(clientFrame(true, OpText, "first") + clientFrame(true, OpPing, "ping") +
		clientFrame(true, OpBinary, "second"))
	at := 0
	for _, want := range []string{"first", "ping", "second"} {
		n, m, err := r.feed(p[at:])
		if err != nil || string(m.payload) != want || m.block != nil {
			t.Fatalf("got %+v, %v, want a view of %q", m, err, want)
		}
		at += n
		if &m.payload[0] != &p[at-len(want)] || cap(m.payload) != len(m.payload) {
			t.Fatalf("%q is not a capped view of the input", want)
		}
	}
	if at != len(p) {
		t.Fatalf("took %d of %d bytes", at, len(p))
	}
}

func TestReaderWholeMessagesDoNotAllocate(t *testing.T) {
	wire := []byte(clientFrame(true, OpText, "Grüße, κόσμε") + clientFrame(true, OpPing, "?") +
		clientFrame(true, OpBinary, string(make([]byte, 128))))
	p := make([]byte, len(wire))
	r := reader{rules: &serverRules}
	allocs := testing.AllocsPerRun(100, func() {
		copy(p, wire)
		for rest := p; len(rest) > 0; {
			n, m, err := r.feed(rest)
			if err != nil || m.op == opContinuation {
				t.Fatal(m, err)
			}
			m.release()
			rest = rest[n:]
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations for three messages, want 0", allocs)
	}
}

// A block that came with a message is the caller's: the reader may go on, or end, before it is
// released.
func TestReaderHandsBlocksOver(t *testing.T) {
	buf.CheckLeaks(t)
	r := reader{rules: &serverRules}
	var kept []message
	wire := clientFrame(true, OpBinary, "one") + clientFrame(true, OpPing, "two") + clientFrame(true, OpBinary, "three")
	for _, piece := range oneByOne([]byte(wire)) {
		if _, m, _ := r.feed(piece); m.op != opContinuation {
			kept = append(kept, m)
		}
	}
	r.release()
	for i, want := range []string{"one", "two", "three"} {
		if string(kept[i].payload) != want || kept[i].block == nil {
			t.Errorf("message %d is %q, want %q in a block of its own", i, kept[i].payload, want)
		}
		kept[i].release()
	}
}

func TestReaderReleasesWhatIsIncomplete(t *testing.T) {
	wire := []byte(clientFrame(false, OpText, "Hello") + clientFrame(true, OpPing, "why")[:8])
	for cut := range len(wire) + 1 {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			buf.CheckLeaks(t)
			r := reader{rules: &serverRules}
			if _, _, err := r.feed(wire[:cut:cut]); err != nil {
				t.Fatal(err)
			}
			r.release()
			r.release()
			copy(wire, clientFrame(false, OpText, "Hello")+clientFrame(true, OpPing, "why")[:8])
		})
	}
}

// What a header announces costs nothing; memory follows the bytes that arrive.
func TestReaderAllocatesForWhatHasArrived(t *testing.T) {
	buf.CheckLeaks(t)
	const announced = 1 << 30
	r := reader{rules: &readRules{fromClient: true, limit: announced}}
	defer r.release()
	head := appendHeader(nil, frameHeader{fin: true, op: OpBinary, masked: true, key: testKey, length: announced})
	if _, _, err := r.feed(head); err != nil {
		t.Fatal(err)
	}
	if r.part.data != nil {
		t.Fatalf("the header alone made a block of %d bytes", r.part.data.Cap())
	}
	arrived := 0
	for _, size := range []int{1, 10, 300, 5000, 7, 65536, 65536, 1 << 20, 1, 1 << 20, 3 << 20} {
		if _, _, err := r.feed(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		arrived += size
		if got := r.part.data.Cap(); r.part.data.Len() != arrived || got > max(256, 2*arrived) {
			t.Fatalf("%d bytes arrived: %d kept in a block of %d", arrived, r.part.data.Len(), got)
		}
	}
}

// Above what is pooled, blocks are exact: they double, so that copying stays linear, but not beyond
// the message's end where that is known.
func TestReaderGrowsLargeMessages(t *testing.T) {
	buf.CheckLeaks(t)
	const total, piece = 10 << 20, 256 << 10
	for _, fin := range []bool{true, false} {
		r := reader{rules: &readRules{fromClient: true, limit: 64 << 20}}
		grown, last := 0, 0
		feed := func(p []byte) {
			if _, _, err := r.feed(p); err != nil {
				t.Fatal(err)
			}
			if b := r.part.data; b != nil && b.Cap() != last {
				grown, last = grown+1, b.Cap()
			}
		}
		h := frameHeader{op: OpBinary, masked: true, fin: fin, length: total}
		if !fin {
			h.length = piece
		}
		feed(appendHeader(nil, h))
		for at := piece; at < total; at += piece {
			feed(make([]byte, piece))
			if !fin {
				feed(appendHeader(nil, frameHeader{masked: true, length: piece}))
			}
		}
		if grown > 7 || fin && last != total {
			t.Errorf("final %v: %d blocks, the last of %d bytes", fin, grown, last)
		}
		r.release()
	}
}

// 6.4.*: invalid text fails with its first bad byte, in whatever fragment and however much is
// announced behind it.
func TestTextFailsFast(t *testing.T) {
	const valid, bad, rest = "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5", "\xf4\x90\x80\x80", "edited"
	long := clientFrame(true, OpText, valid+bad+strings.Repeat("x", 4000))
	for _, c := range []struct {
		id   string
		wire string
		at   int // the offset of the byte that decides
	}{
		{"6.4.1", clientFrame(false, OpText, valid) + clientFrame(false, opContinuation, bad) +
			clientFrame(true, opContinuation, rest),
			6 + len(valid) + 6 + 1},
		{"6.4.2", clientFrame(false, OpText, valid+"\xf4") + clientFrame(false, opContinuation, "\x90") +
			clientFrame(true, opContinuation, rest),
			6 + len(valid) + 1 + 6},
		{"6.4.3", clientFrame(true, OpText, valid+bad+rest), 6 + len(valid) + 1},
		{"6.4.4 in a long frame", long, 8 + len(valid) + 1},
	} {
		t.Run(c.id, func(t *testing.T) {
			wantTranscript(t, &serverRules, []byte(c.wire[:c.at]), nil)
			wantTranscript(t, &serverRules, []byte(c.wire[:c.at+1]), lines("fail 1007"))
			wantTranscript(t, &serverRules, []byte(c.wire), lines("fail 1007"))
		})
	}
}

// A client applies the rules of testdata/frames.txt to frames without a mask.
func TestClientReadsServerFrames(t *testing.T) {
	rules := readRules{limit: 100}
	for _, c := range []struct {
		id, wire string
		want     []string
	}{
		{"fragmented with a ping", "\x01\x03Hel\x89\x01?\x80\x02lo", lines(`ping "?"`, `text "Hello"`)},
		{"masked", clientFrame(true, OpText, "Hello"), lines("fail 1002")},
	} {
		t.Run(c.id, func(t *testing.T) {
			wantTranscript(t, &rules, []byte(c.wire), c.want)
			if ref := reference([]byte(c.wire), rules); !slices.Equal(ref, c.want) {
				t.Fatalf("the reference says %q", ref)
			}
		})
	}
}

// A stop between two messages, for back-pressure, loses nothing: the caller keeps the rest and
// feeds it later.
func TestReaderCanStopBetweenMessages(t *testing.T) {
	r := reader{rules: &serverRules}
	wire := []byte(clientFrame(true, OpText, "a") + clientFrame(true, OpText, "b") + clientFrame(false, OpText, "c"))
	n, m, err := r.feed(wire)
	if string(m.payload) != "a" || err != nil || n != len(clientFrame(true, OpText, "a")) {
		t.Fatalf("got %q after %d bytes, %v", m.payload, n, err)
	}
	later := bytes.Clone(wire[n:])
	if n, m, err = r.feed(later); string(m.payload) != "b" || err != nil {
		t.Fatalf("got %q, %v", m.payload, err)
	}
	if k, m, err := r.feed(later[n:]); k != len(later)-n || m.op != opContinuation || err != nil {
		t.Fatalf("got %d, %+v, %v for an unfinished message", k, m, err)
	}
	r.release()
}

func BenchmarkReader(b *testing.B) {
	for _, size := range []int{128, 1 << 10, 64 << 10} {
		for _, op := range []Op{OpText, OpBinary} {
			b.Run(fmt.Sprintf("%v/%d", op, size), func(b *testing.B) {
				// Masked with 0: what the reader unmasks in place stays the same frame.
				p := appendFrame(nil, frameHeader{fin: true, op: op, masked: true}, bytes.Repeat([]byte{'a'}, size))
				r := reader{rules: &serverRules}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if n, _, err := r.feed(p); n != len(p) || err != nil {
						b.Fatal(n, err)
					}
				}
			})
		}
	}
}

// BenchmarkReaderSplit is a message that arrives in two reads.
func BenchmarkReaderSplit(b *testing.B) {
	p := appendFrame(nil, frameHeader{fin: true, op: OpBinary, masked: true}, make([]byte, 1<<10))
	r := reader{rules: &serverRules}
	b.ReportAllocs()
	for b.Loop() {
		r.feed(p[:500])
		_, m, err := r.feed(p[500:])
		if m.op != OpBinary || err != nil {
			b.Fatal(m, err)
		}
		m.release()
	}
}

// reference is the second opinion on reader: it has all of the input at once, walks it by index in
// the order of RFC 6455 §5, and shares no code with what it judges. It returns the lines of
// transcript.
func reference(in []byte, rules readRules) []string {
	ref := referenceReader{in: in, rules: rules}
	for ref.frame() {
	}
	return ref.lines
}

type referenceReader struct {
	in    []byte
	rules readRules
	lines []string

	open       byte // opcode of the message, 0: none
	compressed bool
	message    []byte
}

func (ref *referenceReader) fail(code int) bool {
	ref.lines = append(ref.lines, fmt.Sprintf("fail %d", code))
	return false
}

// frame takes one frame and reports whether there may be another.
func (ref *referenceReader) frame() bool {
	in := ref.in
	if len(in) < 1 {
		return false
	}
	fin, rsv1, rsv23, op := in[0]>>7 == 1, in[0]>>6&1 == 1, in[0]>>4&3, in[0]&15
	switch {
	case rsv23 != 0, op >= 3 && op <= 7, op >= 11,
		op >= 8 && !fin,
		rsv1 && !(ref.rules.compression && (op == 1 || op == 2)):
		return ref.fail(1002)
	}
	if len(in) < 2 {
		return false
	}
	masked, length, at := in[1]>>7 == 1, uint64(in[1]&127), 2
	if masked != ref.rules.fromClient || op >= 8 && length > 125 {
		return ref.fail(1002)
	}
	if length >= 126 {
		more, least := 2, uint64(126)
		if length == 127 {
			more, least = 8, 65536
		}
		if len(in) < at+more {
			return false
		}
		length = 0
		for range more {
			length = length*256 + uint64(in[at])
			at++
		}
		if length < least || length > 1<<63-1 {
			return ref.fail(1002)
		}
	}
	var key [4]byte
	if masked {
		if len(in) < at+4 {
			return false
		}
		key = [4]byte(in[at:])
		at += 4
	}
	present := min(length, uint64(len(in)-at))
	payload := maskNaive(in[at:at+int(present)], key)
	ref.in = in[at+int(present):]
	if op >= 8 {
		return present == length && ref.control(op, payload)
	}
	return ref.data(op, fin, rsv1, length, payload)
}

func (ref *referenceReader) control(op byte, payload []byte) bool {
	if op == 8 && len(payload) > 0 {
		if len(payload) == 1 {
			return ref.fail(1002)
		}
		code := int(payload[0])*256 + int(payload[1])
		if code < 1000 || code > 4999 || code > 1014 && code < 3000 || code >= 1004 && code <= 1006 {
			return ref.fail(1002)
		}
		if bad, unfinished := firstBadByte(payload[2:]); unfinished || bad < len(payload)-2 {
			return ref.fail(1007)
		}
	}
	ref.lines = append(ref.lines, describe(Op(op), false, payload))
	return op != 8
}

func (ref *referenceReader) data(op byte, fin, rsv1 bool, length uint64, payload []byte) bool {
	if (op == 0) != (ref.open != 0) {
		return ref.fail(1002)
	}
	if op != 0 {
		ref.open, ref.compressed, ref.message = op, rsv1, nil
	}
	if length+uint64(len(ref.message)) > uint64(ref.rules.limitOf(ref.compressed)) {
		return ref.fail(1009)
	}
	ref.message = append(ref.message, payload...)
	ended := fin && uint64(len(payload)) == length
	if ref.open == 1 && !ref.compressed {
		if bad, unfinished := firstBadByte(ref.message); bad < len(ref.message) || ended && unfinished {
			return ref.fail(1007)
		}
	}
	if uint64(len(payload)) < length {
		return false
	}
	if ended {
		ref.lines = append(ref.lines, describe(Op(ref.open), ref.compressed, ref.message))
		ref.open = 0
	}
	return true
}

// maskNaive is §5.3 word for word: octet i is XORed with octet i modulo 4 of the key.
func maskNaive(p []byte, key [4]byte) []byte {
	out := make([]byte, len(p))
	for i := range p {
		out[i] = p[i] ^ key[i%4]
	}
	return out
}

func randomBytes(rng *rand.Rand, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	return p
}

// The example of RFC 6455 §5.7: a masked "Hello".
func TestMaskRFCExample(t *testing.T) {
	p := []byte{0x7f, 0x9f, 0x4d, 0x51, 0x58}
	mask(p, binary.LittleEndian.Uint32([]byte{0x37, 0xfa, 0x21, 0x3d}))
	if string(p) != "Hello" {
		t.Fatalf("unmasked to %q, want Hello", p)
	}
}

func TestMaskEveryLengthAndOffset(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	wire := [4]byte{0x01, 0x80, 0x7f, 0xfe}
	key := binary.LittleEndian.Uint32(wire[:])
	for offset := range 9 {
		for n := range 200 {
			room := randomBytes(rng, offset+n+8)
			before := bytes.Clone(room)
			want := maskNaive(room[offset:offset+n], wire)
			mask(room[offset:offset+n], key)
			if !bytes.Equal(room[offset:offset+n], want) {
				t.Fatalf("offset %d, %d bytes: got %x, want %x", offset, n, room[offset:offset+n], want)
			}
			if !bytes.Equal(room[:offset], before[:offset]) || !bytes.Equal(room[offset+n:], before[offset+n:]) {
				t.Fatalf("offset %d, %d bytes: wrote outside the payload", offset, n)
			}
		}
	}
}

func FuzzMaskSplit(f *testing.F) {
	f.Add([]byte("Hello"), uint32(0x3d21fa37), uint8(2), uint8(3))
	f.Add(bytes.Repeat([]byte{0xff}, 300), uint32(1), uint8(65), uint8(7))
	f.Fuzz(func(t *testing.T, p []byte, key uint32, a, b uint8) {
		var wire [4]byte
		binary.LittleEndian.PutUint32(wire[:], key)
		want := maskNaive(p, wire)
		i := min(int(a), len(p))
		j := min(i+int(b), len(p))
		rotated := mask(p[:i], key)
		rotated = mask(p[i:j], rotated)
		mask(p[j:], rotated)
		if !bytes.Equal(p, want) {
			t.Fatalf("cut at %d and %d: got %x, want %x", i, j, p, want)
		}
	})
}

func BenchmarkMask(b *testing.B) {
	for _, size := range []int{16, 128, 1 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			p := make([]byte, size)
			key := uint32(0x3d21fa37)
			b.SetBytes(int64(size))
			for b.Loop() {
				key = mask(p, key)
			}
		})
	}
}
