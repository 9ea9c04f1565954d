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

// A recut stream has the same messages in it, and every piece is small.
func FuzzRecut(f *testing.F) {
	f.Add(append([]byte{22, 3, 1, 3, 0}, bytes.Repeat([]byte{1, 2, 3}, 300)...))
	f.Add([]byte{22, 3, 1, 0, 0})
	f.Add([]byte{21, 3, 1, 0, 2, 1, 0})
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) > headerLen && p[0] == typeHandshake { // make large ones likely
			p[3] &= 7
		}
		got := recut(bytes.Clone(p))
		if bytes.Equal(got, p) {
			return
		}
		n := int(p[3])<<8 | int(p[4])
		var body []byte
		for range helloPieces {
			m := int(got[3])<<8 | int(got[4])
			if !bytes.Equal(got[:3], p[:3]) || m == 0 || m > (n+7)/8 {
				t.Fatalf("piece % x of %d bytes", got[:headerLen], n)
			}
			body = append(body, got[headerLen:headerLen+m]...)
			if got = got[headerLen+m:]; len(body) == n {
				break
			}
		}
		if !bytes.Equal(append(body, got...), p[headerLen:]) {
			t.Fatal("the bytes are not the same")
		}
	})
}

// Whatever cannot become a record is given to crypto/tls at once, and a record when it is whole.
func TestFirstComplete(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want bool
	}{
		{"", false}, {"\x16", false}, {"\x16\x03\x01\x00", false}, {"\x16\x03\x01\x00\x02a", false}, {"\x16\x03\x01\x00\x02ab", true},
		{"\x16\x03\x01\x00\x00", true}, {"\x16\x03\x01\xff\xff", true}, {"GET", false}, {"GET /", true}, {"\x80\x2e\x01\x00\x02", true},
	} {
		if got := firstComplete([]byte(tt.in)); got != tt.want {
			t.Errorf("%q: %v", tt.in, got)
		}
	}
}
