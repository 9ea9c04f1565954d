package fossil

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/myriad-go/myriad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// check makes a delta and applies it.
func check(t testing.TB, source, target []byte) []byte {
	t.Helper()
	delta := Append([]byte("kept"), source, target)
	if !bytes.HasPrefix(delta, []byte("kept")) {
		t.Fatalf("the buffer was overwritten: %q", delta)
	}
	delta = delta[4:]
	got, err := Apply(source, delta, len(target))
	if err != nil || !bytes.Equal(got, target) {
		t.Fatalf("source %q, target %q, delta %q: got %q, %v", source, target, delta, got, err)
	}
	if utf8.Valid(source) && utf8.Valid(target) && !utf8.Valid(delta) {
		t.Fatalf("source %q, target %q: the delta %q is not UTF-8", source, target, delta)
	}
	return delta
}

func TestDeltas(t *testing.T) {
	long := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 200)
	for _, tt := range []struct {
		name, source, target string
		most                 int // bytes of the delta
	}{
		{"empty", "", "", 4},
		{"from nothing", "", "hello", 20},
		{"to nothing", long, "", 4},
		{"equal", long, long, 30},
		{"a change in the middle", long, long[:3000] + "X" + long[3001:], 40},
		{"an insertion", long, long[:3000] + "some new text" + long[3000:], 60},
		{"a deletion", long, long[:3000] + long[3500:], 40},
		{"moved", "0123456789abcdefghij" + long, long + "0123456789abcdefghij", 60},
		{"other", strings.Repeat("a", 300), strings.Repeat("b", 300), 320},
		{"umlauts", strings.Repeat("äöü", 50), strings.Repeat("äöü", 20) + "äß" + strings.Repeat("äöü", 30), 60},
		{"JSON", `{"counter":1,"payload":"` + long + `"}`, `{"counter":2,"payload":"` + long + `"}`, 60},
	} {
		delta := check(t, []byte(tt.source), []byte(tt.target))
		if len(delta) > tt.most {
			t.Errorf("%s: the delta has %d bytes, want at most %d: %.200q", tt.name, len(delta), tt.most, delta)
		}
	}
}

// The digits, and the checksum of a literal, are those of the format's documentation.
func TestNumbersAndChecksum(t *testing.T) {
	if got := string(Append(nil, nil, []byte("abcd"))); got != fmt.Sprintf("4\n4:abcd%s;", appendInt(nil, 0x61626364)) {
		t.Errorf("got %q", got)
	}
	for n, want := range map[uint32]string{0: "0", 9: "9", 10: "A", 36: "_", 37: "a", 63: "~", 64: "10",
		6246: "1Xb"} {
		if got := string(appendInt(nil, n)); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestApplyErrors(t *testing.T) {
	for _, delta := range []string{"", "4", "4\n", "4\n4:abc", "4\n4@0,", "4\n5:abcde0;", "4\n4:abcd0;",
		"4\n4:abcd1XdPC;x",
		"~~~~~~\n", "4\n4@z0,0;", "4\n4?", "\n;", "4;", "4\n4@0;", "4\n:abcd"} {
		if got, err := Apply([]byte("xyz"), []byte(delta), 100); err == nil {
			t.Errorf("%q: %q", delta, got)
		}
	}
	if _, err := Apply(nil, Append(nil, nil, make([]byte, 101)), 100); err == nil {
		t.Error("a target above the limit is made")
	}
}

func TestRandomDeltas(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	letters := []string{"a", "b", "cc", "ä", "日本", "\xff", `{"a":`}
	for range 2000 {
		source, target := "", ""
		for range r.IntN(60) {
			source += letters[r.IntN(len(letters))]
		}
		target = source
		for range r.IntN(4) {
			at := r.IntN(len(target) + 1)
			target = target[:at] + letters[r.IntN(len(letters))] + target[r.IntN(len(target)-at+1)+at:]
		}
		check(t, []byte(source), []byte(target))
	}
}

// Content that repeats itself does not make a delta slow: maxTries bounds the comparisons for each
// position. With a quadratic number of them this test would not end in time.
func TestBombs(t *testing.T) {
	const size = 256 << 10
	zeros := bytes.Repeat([]byte{'0'}, size)
	other := bytes.Clone(zeros)
	for i := 15; i < size; i += 16 {
		other[i] = '1'
	}
	check(t, zeros, other)
	check(t, other, zeros)
	check(t, bytes.Repeat([]byte{0x80}, size), bytes.Repeat([]byte{0x80}, size-1))
	check(t, append(bytes.Repeat([]byte{0x80}, size), 1), append([]byte{2}, bytes.Repeat([]byte{0x80}, size)...))
	check(t, bytes.Repeat([]byte("0123456789abcdef"), size/16), bytes.Repeat([]byte("0123456789abcdeX"), size/16))
}

func FuzzDelta(f *testing.F) {
	f.Add([]byte("source"), []byte("target"))
	f.Add(bytes.Repeat([]byte("ä"), 40), bytes.Repeat([]byte("ä"), 30))
	f.Fuzz(func(t *testing.T, source, target []byte) {
		check(t, source, target)
		if got, err := Apply(source, target, 1<<20); err == nil && len(got) > 1<<20 {
			t.Fatal("the limit does not hold")
		}
	})
}
