package websocket

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
)

// The tests in hunt_*_test.go try what users of other libraries have reported: docs/HUNTS.md lists
// the reports.

// A reported is what a client sends behind its request, and what comes of it.
type reported struct {
	name  string
	wire  string
	texts []string   // messages that are heard
	code  StatusCode // of the end
}

// bare is a frame with the masked payload, whatever its header says.
func bare(h frameHeader, payload string) string {
	h.masked, h.key = true, 0x0a0b0c0d
	return string(appendFrame(nil, h, []byte(payload)))
}

// split is a message in as many frames as payloads, with between before each but the first.
func split(op Op, packed bool, between string, payloads ...string) (wire string) {
	for i, p := range payloads {
		h := frameHeader{fin: i == len(payloads)-1, op: op, rsv1: packed && i == 0}
		if i > 0 {
			h.op = opContinuation
			wire += between
		}
		wire += bare(h, p)
	}
	return wire
}

// packedParts is text compressed, cut into so many payloads.
func packedParts(text, window string, n int) []string {
	d := deflate([]byte(text), []byte(window), 1, maxWindowBits)
	defer d.put()
	p, size := string(d.out), len(d.out)/n+1
	var parts []string
	for ; len(p) > size; p = p[size:] {
		parts = append(parts, p[:size])
	}
	return append(parts, p)
}

// packedOf is text compressed, in one payload.
func packedOf(text, window string) string { return packedParts(text, window, 1)[0] }

const (
	hello       = "\xf2\x48\xcd\xc9\xc9\x07\x00" // RFC 7692 section 7.2.3.1
	mostInTests = 1000
)

func reports() []reported {
	ping := clientFrame(true, OpPing, "?")
	zeros := func(n int) string { return strings.Repeat("0", n) }
	tale := strings.Repeat("It was a dark and stormy night; ", 20)
	header := func(first byte, length string) string { return string([]byte{first}) + length + "\x01\x02\x03\x04" }
	all := []reported{
		{"pings between packed fragments", split(OpText, true, ping, packedParts(tale, "", 3)...) +
			split(OpText, true, ping, packedParts(tale+"!", tale, 2)...), []string{tale, tale + "!"}, 1000},
		{"pongs between packed fragments", split(OpBinary, true, clientFrame(true, OpPong, ""),
			packedParts(tale, "", 3)...), []string{tale}, 1000},
		{"empty fragments of a packed message", split(OpText, true, "", "", hello[:3], "", hello[3:], ""),
			[]string{"Hello"}, 1000},
		{"packed: the tail is sent, and an empty block follows", split(OpText, true, "", hello+"\x00\x00\xff\xff",
			"\x00") + split(OpText, true, "", packedOf("World", "Hello")), []string{"Hello", "World"}, 1000},
		{"packed: a final block", split(OpText, true, "", "\xf3\x48\xcd\xc9\xc9\x07\x00\x00"), []string{"Hello"}, 1000},
		{"packed: a final block, and another stream", split(OpText, true, "", "\xf3\x48\xcd\xc9\xc9\x07\x00"+hello),
			[]string{"HelloHello"}, 1000},
		{"packed: two blocks", split(OpText, true, "", "\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00"),
			[]string{"Hello"}, 1000},
		{"packed: a stored block", split(OpText, true, "", "\x00\x05\x00\xfa\xffHello\x00"), []string{"Hello"}, 1000},
		{"packed: the same again by reference", split(OpText, true, "", hello) +
			split(OpText, true, "", "\xf2\x00\x11\x00\x00"), []string{"Hello", "Hello"}, 1000},
		{"packed: nothing", split(OpText, true, "", "\x00"), []string{""}, 1000},
		{"packed: no byte at all", split(OpText, true, "", ""), nil, 1007},
		{"a plain message between packed ones", split(OpText, true, "", packedOf(tale, "")) +
			clientFrame(true, OpText, zeros(900)) + split(OpText, true, "", packedOf(tale+"?", tale)),
			[]string{tale, zeros(900), tale + "?"}, 1000},
		{"packed: as large as may be", split(OpBinary, true, "", packedOf(zeros(mostInTests), "")),
			[]string{zeros(mostInTests)}, 1000},
		{"packed: a bomb in fragments", split(OpBinary, true, ping, packedParts(zeros(1<<20), "", 4)...), nil, 1009},
		{"packed: a bomb of many streams", split(OpBinary, true, "", strings.Repeat("\x03\x00", 400)+hello), nil, 1007},
		{"packed: damaged", split(OpText, true, "", "\xff\xff\xff"), nil, 1007},
		{"packed: cut", split(OpText, true, "", packedOf(tale, "")[:20]), nil, 1007},
		{"packed: a reference to nothing", split(OpText, true, "", "\xf2\x00\x11\x00\x00"), nil, 1007},
		{"packed: not UTF-8", split(OpText, true, "", packedOf("\xc3\x28\xc3\x28", "")), nil, 1007},
		{"RSV1 in a continuation", bare(frameHeader{op: OpText, rsv1: true}, hello[:3]) +
			bare(frameHeader{op: opContinuation, rsv1: true, fin: true}, hello[3:]), nil, 1002},
		{"RSV1 in a ping", bare(frameHeader{op: OpPing, rsv1: true, fin: true}, "?"), nil, 1002},
		{"a character across fragments and pings", split(OpText, false, ping, "\xe2", "\x82", "\xac"),
			[]string{"\u20ac"}, 1000},
		{"empty continuations", split(OpText, false, "",
			slices.Concat([]string{"a"}, make([]string, 1000), []string{"b"})...), []string{"ab"}, 1000},
		{"fragments of a byte, above the limit", split(OpBinary, false, "",
			slices.Repeat([]string{"x"}, mostInTests+1)...), nil, 1009},
		{"fragments of a byte, as many as may be", split(OpBinary, false, "",
			slices.Repeat([]string{"x"}, mostInTests)...), []string{strings.Repeat("x", mostInTests)}, 1000},
		{"a length of 64 bits and its sign", header(0x82, "\xff\x80\x00\x00\x00\x00\x00\x00\x01"), nil, 1002},
		{"the largest length", header(0x82, "\xff\x7f\xff\xff\xff\xff\xff\xff\xff"), nil, 1009},
		{"the largest length of a continuation", bare(frameHeader{op: OpText}, "x") +
			header(0x80, "\xff\x7f\xff\xff\xff\xff\xff\xff\xff"), nil, 1009},
		{"a short length in 64 bits", header(0x82, "\xff\x00\x00\x00\x00\x00\x00\x00\x01") + "x", nil, 1002},
		{"a short length in 16 bits", header(0x82, "\xfe\x00\x01") + "x", nil, 1002},
		{"a ping of 126 bytes", bare(frameHeader{fin: true, op: OpPing}, zeros(126)), nil, 1002},
		{"a ping in fragments", bare(frameHeader{op: OpPing}, "?"), nil, 1002},
		{"a close frame of one byte", bare(frameHeader{fin: true, op: OpClose}, "\x03"), nil, 1002},
		{"a close reason that is not UTF-8", bare(frameHeader{fin: true, op: OpClose}, "\x03\xe8\xff"), nil, 1007},
		{"a close frame inside a message", bare(frameHeader{op: OpText}, "x") +
			clientFrame(true, OpClose, closeWith(4000, "")), nil, 4000},
		{"messages behind a close frame", clientFrame(true, OpClose, closeWith(4001, "")) +
			clientFrame(true, OpText, "late") + ping, nil, 4001},
	}
	for _, over := range []int{1, 2, 3, 100} {
		all = append(all, reported{fmt.Sprint("packed: above the limit by ", over),
			split(OpBinary, true, "", packedOf(zeros(mostInTests+over), "")), nil, 1009})
	}
	return all
}

// Frames that others have taken for something else, refused, or not refused, in pieces of all
// sizes, over both versions of HTTP. A peer that breaks a rule is told the code.
func TestReportedFrames(t *testing.T) {
	eachWay(t, func(t *testing.T, d web.Dispatch) {
		for i, r := range reports() {
			for seed := range uint64(2) {
				runReported(t, r, d, seed+10*uint64(i))
			}
		}
	})
}

func runReported(t *testing.T, r reported, d web.Dispatch, seed uint64) {
	t.Helper()
	wire := r.wire
	if r.code == StatusNormalClosure {
		wire += clientFrame(true, OpClose, closeWith(r.code, ""))
	}
	o := &Options{Dispatch: d, PingInterval: quiet, MaxMessage: mostInTests,
		Compression: Compression{Enabled: true, Threshold: 1, ReadWindowBits: 15, WriteWindowBits: 15}}
	if seed%2 == 0 {
		o, heard := recorded(o)
		w := newWorld(t, seed, sim.Lossless(), myriad.Config{}, handlerOf(t, o))
		c := w.client(compressingRequest() + wire)
		w.Run()
		r.check(t, seed, heard.all(), c.lines(t), c.Ended())
		w.stop()
		return
	}
	o, heard := recorded(o)
	w := newMuxWorld(t, seed, sim.Lossless(), o)
	c := w.dial(plenty)
	c.open(1, "sec-websocket-extensions", "permessage-deflate; client_max_window_bits")
	c.frames(1, wire, 1+int(seed*7)%40, false)
	w.RunFor(20 * time.Second)
	r.check(t, seed, heard.all(), c.lines(1), strings.HasPrefix(c.stream(1).end, "END_STREAM"))
	w.stop(c)
}

// check compares what was heard, and what the client has read.
func (r *reported) check(t *testing.T, seed uint64, all, read []string, ended bool) {
	t.Helper()
	var texts, want []string
	for _, l := range all {
		if _, quoted, ok := strings.Cut(l, ` "`); ok {
			texts = append(texts, `"`+quoted)
		}
	}
	for _, text := range r.texts {
		want = append(want, fmt.Sprintf("%q", text))
	}
	if !slices.Equal(texts, want) || len(all) == 0 || all[len(all)-1] != fmt.Sprintf("end %d", r.code) {
		t.Errorf("%s, seed %d: heard %.300q, want %.300q and the end with %d", r.name, seed, all, want, r.code)
	}
	frame := strings.TrimSuffix(line(OpClose, closeWith(r.code, "")), `"`)
	if len(read) == 0 || !strings.HasPrefix(read[len(read)-1], frame) {
		t.Errorf("%s, seed %d: the client read %.200q, at last no close frame with %d", r.name, seed, read, r.code)
	}
	if !ended {
		t.Errorf("%s, seed %d: the connection was not ended", r.name, seed)
	}
}
