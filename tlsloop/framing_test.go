package tlsloop

import (
	"bytes"
	"testing"
)

// Bytes that are given in any pieces are framed as in one.
func FuzzFraming(f *testing.F) {
	f.Add([]byte{22, 3, 1, 0, 2, 9, 9, 23, 3, 3, 0, 0, 23, 3, 3, 1, 0}, uint8(1))
	f.Add(bytes.Repeat([]byte{0}, 40), uint8(7))
	f.Fuzz(func(t *testing.T, p []byte, step uint8) {
		var whole, pieces framing
		whole.passed(p)
		for rest := p; len(rest) > 0; {
			n := min(len(rest), int(step)+1)
			pieces.passed(rest[:n])
			rest = rest[n:]
		}
		if whole.left != pieces.left || whole.have != pieces.have {
			t.Fatalf("%+v in one piece, %+v in pieces", whole, pieces)
		}
		var fed framing
		room := make([]byte, 1<<10)
		for rest := p; len(rest) > 0; {
			if fed.next() <= 0 {
				t.Fatal("nothing may pass")
			}
			n := fed.give(room[:1+int(step)], rest)
			if n <= 0 {
				t.Fatal("no progress")
			}
			rest = rest[n:]
		}
		if whole.left != fed.left || whole.have != fed.have {
			t.Fatalf("%+v in one piece, %+v when given", whole, fed)
		}
	})
}

// Whatever cannot become a record is given to crypto/tls at once, and a record when it is whole.
func TestFirstComplete(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want bool
	}{
		{"", false}, {"\x16", false}, {"\x16\x03\x01\x00", false}, {"\x16\x03\x01\x00\x02a", false},
		{"\x16\x03\x01\x00\x02ab", true},
		{"\x16\x03\x01\x00\x00", true}, {"\x16\x03\x01\xff\xff", true}, {"GET", false}, {"GET /", true},
		{"\x80\x2e\x01\x00\x02", true},
	} {
		if got := firstComplete([]byte(tt.in)); got != tt.want {
			t.Errorf("%q: %v", tt.in, got)
		}
	}
}

// A record is taken as it lies if it begins where one has to and all of it is there.
func TestWhole(t *testing.T) {
	for _, tt := range []struct {
		passed, in string
		want       int
	}{
		{"", "", 0}, {"", "\x17\x03\x03\x00", 0}, {"", "\x17\x03\x03\x00\x02a", 0},
		{"", "\x17\x03\x03\x00\x02ab", 7}, {"", "\x17\x03\x03\x00\x02ab\x17\x03", 7}, {"", "\x17\x03\x03\x00\x00", 5},
		{"\x17\x03\x03\x00\x02ab", "\x17\x03\x03\x00\x02ab", 7},
		{"\x17", "\x03\x03\x00\x00\x00\x00", 0},                     // within a header
		{"\x17\x03\x03\x00\x09abc", "\x17\x03\x03\x00\x01a", 0},     // within a body
		{"\x17\x03\x03\x00\x09", "\x17\x03\x03\x00\x01a1234567", 0}, // at a body's beginning
	} {
		var f framing
		f.passed([]byte(tt.passed))
		if got := f.whole([]byte(tt.in)); got != tt.want {
			t.Errorf("%q after %q: %d, want %d", tt.in, tt.passed, got, tt.want)
		}
	}
}
