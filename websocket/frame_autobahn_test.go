package websocket

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// These tables hold the cases 1 to 7 of the Autobahn test suite as far as they are about frames,
// under its numbers. Each runs whole, byte by byte and cut at random.

type frameCase struct {
	id   string
	wire string
	want []string
}

func runCases(t *testing.T, cases []frameCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.id, func(t *testing.T) { wantTranscript(t, &serverRules, []byte(c.wire), c.want) })
	}
}

// rawFrame is a masked frame with any first byte, valid or not.
func rawFrame(first byte, payload string) string {
	frame := []byte(clientFrame(true, OpText, payload))
	frame[0] = first
	return string(frame)
}

func lines(l ...string) []string { return l }

func line(op Op, payload string) string { return describe(op, false, []byte(payload)) }

func TestAutobahn1Sizes(t *testing.T) {
	for _, op := range []Op{OpText, OpBinary} {
		for _, size := range []int{0, 125, 126, 127, 128, 65535, 65536} {
			t.Run(fmt.Sprintf("%v %d", op, size), func(t *testing.T) {
				payload := strings.Repeat("*", size)
				wantTranscript(t, &serverRules, []byte(clientFrame(true, op, payload)), lines(line(op, payload)))
			})
		}
	}
}

func TestAutobahn2Pings(t *testing.T) {
	const binary = "\x00\xff\xfe\xfd\xfc\xfb\x00\xff"
	longest := strings.Repeat("\xfe", 125)
	ten, tenLines := "", []string(nil)
	for i := range 10 {
		payload := fmt.Sprint("payload-", i)
		ten += clientFrame(true, OpPing, payload)
		tenLines = append(tenLines, line(OpPing, payload))
	}
	runCases(t, []frameCase{
		{"2.1", clientFrame(true, OpPing, ""), lines(`ping ""`)},
		{"2.2", clientFrame(true, OpPing, "Hello, world!"), lines(`ping "Hello, world!"`)},
		{"2.3", clientFrame(true, OpPing, binary), lines(line(OpPing, binary))},
		{"2.4", clientFrame(true, OpPing, longest), lines(line(OpPing, longest))},
		{"2.5", clientFrame(true, OpPing, longest+"\xfe"), lines("fail 1002")},
		{"2.7", clientFrame(true, OpPong, ""), lines(`pong ""`)},
		{"2.9", clientFrame(true, OpPong, "unsolicited") + clientFrame(true, OpPing, "ping"),
			lines(`pong "unsolicited"`, `ping "ping"`)},
		{"2.10", ten, tenLines},
	})
}

func TestAutobahn3ReservedBits(t *testing.T) {
	hello, after := clientFrame(true, OpText, "Hello"), clientFrame(true, OpPing, "")
	runCases(t, []frameCase{
		{"3.1", rawFrame(0xc1, "small"), lines("fail 1002")},
		{"3.2", hello + rawFrame(0xa1, "small") + after, lines(`text "Hello"`, "fail 1002")},
		{"3.3", hello + rawFrame(0xb1, "small") + after, lines(`text "Hello"`, "fail 1002")},
		{"3.4", hello + rawFrame(0x91, "small") + after, lines(`text "Hello"`, "fail 1002")},
		{"3.5", rawFrame(0xd2, "small"), lines("fail 1002")},
		{"3.6", rawFrame(0xe9, "small"), lines("fail 1002")},
		{"3.7", rawFrame(0xf8, "\x03\xe8"), lines("fail 1002")},
	})
}

func TestAutobahn4ReservedOpcodes(t *testing.T) {
	hello := clientFrame(true, OpText, "Hello")
	for _, op := range []byte{3, 4, 5, 6, 7, 11, 12, 13, 14, 15} {
		for _, payload := range []string{"", "reserved"} {
			wire := hello + rawFrame(finBit|op, payload) + clientFrame(true, OpPing, "")
			runCases(t, []frameCase{{fmt.Sprintf("opcode %d %q", op, payload), wire,
				lines(`text "Hello"`, "fail 1002")}})
		}
	}
}

func TestAutobahn5Fragments(t *testing.T) {
	first, middle, last := clientFrame(false, OpText, "frag1"), clientFrame(false, opContinuation, "frag2"),
		clientFrame(true, opContinuation, "frag3")
	ping := clientFrame(true, OpPing, "ping")
	hello := clientFrame(true, OpText, "Hello")
	runCases(t, []frameCase{
		{"5.1", rawFrame(0x09, "fra") + rawFrame(0x80, "gment"), lines("fail 1002")},
		{"5.2", rawFrame(0x0a, "fra") + rawFrame(0x80, "gment"), lines("fail 1002")},
		{"5.3", first + last, lines(`text "frag1frag3"`)},
		{"5.6", first + ping + last, lines(`ping "ping"`, `text "frag1frag3"`)},
		{"5.9", clientFrame(true, opContinuation, "non-continuation") + hello, lines("fail 1002")},
		{"5.12", clientFrame(false, opContinuation, "non-continuation") + hello, lines("fail 1002")},
		{"5.15", first + last + clientFrame(false, opContinuation, "frag4") + hello,
			lines(`text "frag1frag3"`, "fail 1002")},
		{"5.18", first + clientFrame(true, OpText, "frag2"), lines("fail 1002")},
		{"5.18 binary", first + clientFrame(false, OpBinary, "frag2"), lines("fail 1002")},
		{"5.19", first + middle + ping + middle + ping + last, lines(`ping "ping"`, `ping "ping"`,
			`text "frag1frag2frag2frag3"`)},
		{"6.1.2", clientFrame(false, OpText, "") + clientFrame(false, opContinuation, "") +
			clientFrame(true, opContinuation, ""), lines(`text ""`)},
		{"6.1.3", clientFrame(false, OpText, "") + clientFrame(false, opContinuation, "middle") +
			clientFrame(true, opContinuation, ""), lines(`text "middle"`)},
		{"close inside", first + clientFrame(true, OpClose, "") + last, lines(`close ""`)},
	})
}

const latin = "Hello-µ@ßöäüàá-UTF-8!!"

func TestAutobahn6Text(t *testing.T) {
	fragmentEach := func(text string) (wire string) {
		op := OpText
		for i := range len(text) {
			wire += clientFrame(i == len(text)-1, op, text[i:i+1])
			op = opContinuation
		}
		return wire
	}
	cases := []frameCase{
		{"6.2.1", clientFrame(true, OpText, latin), lines(line(OpText, latin))},
		{"6.2.2", clientFrame(false, OpText, latin[:12]) + clientFrame(true, opContinuation, latin[12:]),
			lines(line(OpText, latin))},
		{"6.2.3", fragmentEach(latin), lines(line(OpText, latin))},
		{"6.2.4", fragmentEach("\u03ba\u1f79\u03c3\u03bc\u03b5"),
			lines(line(OpText, "\u03ba\u1f79\u03c3\u03bc\u03b5"))},
	}
	for i, text := range []string{
		"\u0000", "\u0080", "\u0800", "\U00010000", "\u007f", "\u07ff", "\uffff", "\ud7ff", "\ue000", "\ufffd",
		"\U0010ffff",
		"\ufffe", "\U0001fffe", "\U0010fffe",
	} {
		cases = append(cases, frameCase{fmt.Sprintf("valid %d", i), clientFrame(true, OpText, text),
			lines(line(OpText, text))})
	}
	for i, text := range []string{
		"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited", "\xce", "\xce\xba\xe1", "\xce\xba\xe1\xbd",
		"\xf8\x88\x80\x80\x80", "\xfc\x84\x80\x80\x80\x80", "\xf7\xbf\xbf\xbf", "\xf4\x90\x80\x80", "\x80", "\xbf",
		"\x80\xbf",
		"\xc0 \xc1 ", "\xe0 \xe1 ", "\xf0\x80\x80", "\xfe", "\xff", "\xc0\xaf", "\xe0\x80\xaf", "\xc1\xbf",
		"\xf0\x8f\xbf\xbf",
		"\xed\xad\xbf", "\xed\xa0\x80\xed\xb0\x80",
	} {
		cases = append(cases,
			frameCase{fmt.Sprintf("invalid %d", i), clientFrame(true, OpText, text), lines("fail 1007")},
			frameCase{fmt.Sprintf("invalid %d in fragments", i), fragmentEach(text), lines("fail 1007")},
			frameCase{fmt.Sprintf("binary %d", i), clientFrame(true, OpBinary, text), lines(line(OpBinary, text))})
	}
	runCases(t, cases)
}

// 6.4.*: invalid text fails with its first bad byte, in whatever fragment and however much is
// announced behind it.
func TestAutobahn6FailFast(t *testing.T) {
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

func TestAutobahn7Close(t *testing.T) {
	normal := clientFrame(true, OpClose, "\x03\xe8")
	hello := clientFrame(true, OpText, "Hello")
	longest := "\x03\xe8" + strings.Repeat("*", 123)
	runCases(t, []frameCase{
		{"7.1.1", hello + normal, lines(`text "Hello"`, `close "\x03\xe8"`)},
		{"7.1.2", normal + normal, lines(`close "\x03\xe8"`)},
		{"7.1.3", normal + clientFrame(true, OpPing, ""), lines(`close "\x03\xe8"`)},
		{"7.1.4", normal + hello, lines(`close "\x03\xe8"`)},
		{"7.1.5", clientFrame(false, OpText, "frag1") + normal + clientFrame(true, opContinuation, "frag2"),
			lines(`close "\x03\xe8"`)},
		{"garbage after", normal + "\xff\xff\xff", lines(`close "\x03\xe8"`)},
		{"7.3.1", clientFrame(true, OpClose, ""), lines(`close ""`)},
		{"7.3.2", clientFrame(true, OpClose, "a"), lines("fail 1002")},
		{"7.3.3", normal, lines(`close "\x03\xe8"`)},
		{"7.3.4", clientFrame(true, OpClose, "\x03\xe8Hello World!"), lines(`close "\x03\xe8Hello World!"`)},
		{"7.3.5", clientFrame(true, OpClose, longest), lines(line(OpClose, longest))},
		{"7.3.6", clientFrame(true, OpClose, longest+"*"), lines("fail 1002")},
		{"7.5.1", clientFrame(true, OpClose, "\x03\xe8\xce\xba\xe1\xbd\xb9\xed\xa0\x80edited"), lines("fail 1007")},
	})
}

func TestAutobahn7CloseCodes(t *testing.T) {
	body := func(code int) string { return string([]byte{byte(code >> 8), byte(code)}) }
	var cases []frameCase
	for _, code := range []int{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000,
		4999} {
		cases = append(cases, frameCase{fmt.Sprint("7.7 code ", code), clientFrame(true, OpClose, body(code)),
			lines(line(OpClose, body(code)))})
	}
	for _, code := range []int{0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535} {
		cases = append(cases,
			frameCase{fmt.Sprint("7.9 code ", code), clientFrame(true, OpClose, body(code)), lines("fail 1002")},
			frameCase{fmt.Sprintf("7.9 code %d with a reason", code), clientFrame(true, OpClose, body(code)+"reason"),
				lines("fail 1002")})
	}
	runCases(t, cases)
}

// The tables above speak for a server; a client applies the same rules to unmasked frames.
func TestClientReadsServerFrames(t *testing.T) {
	rules := readRules{limit: 100}
	for _, c := range []frameCase{
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
