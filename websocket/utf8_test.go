package websocket

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// utf8Table is Table 3-7 of the Unicode Standard, "Well-Formed UTF-8 Byte Sequences", an oracle
// that shares nothing with the code under test.
var utf8Table = [][][2]byte{
	{{0x00, 0x7f}},
	{{0xc2, 0xdf}, {0x80, 0xbf}},
	{{0xe0, 0xe0}, {0xa0, 0xbf}, {0x80, 0xbf}},
	{{0xe1, 0xec}, {0x80, 0xbf}, {0x80, 0xbf}},
	{{0xed, 0xed}, {0x80, 0x9f}, {0x80, 0xbf}},
	{{0xee, 0xef}, {0x80, 0xbf}, {0x80, 0xbf}},
	{{0xf0, 0xf0}, {0x90, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}},
	{{0xf1, 0xf3}, {0x80, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}},
	{{0xf4, 0xf4}, {0x80, 0x8f}, {0x80, 0xbf}, {0x80, 0xbf}},
}

// firstBadByte returns the index of the first byte after which p cannot become valid, or len(p),
// and whether a sequence is unfinished at the end.
func firstBadByte(p []byte) (bad int, unfinished bool) {
	i := 0
	for i < len(p) {
		n, open := matchSequence(p[i:])
		if open {
			return len(p), true
		}
		if n == 0 {
			return i + longestPrefix(p[i:]), false
		}
		i += n
	}
	return len(p), false
}

func matchSequence(p []byte) (n int, open bool) {
	for _, row := range utf8Table {
		switch k := prefixOf(p, row); {
		case k == len(row):
			return k, false
		case k == len(p):
			return 0, true
		}
	}
	return 0, false
}

func longestPrefix(p []byte) int {
	longest := 0
	for _, row := range utf8Table {
		longest = max(longest, prefixOf(p, row))
	}
	return longest
}

func prefixOf(p []byte, row [][2]byte) int {
	k := 0
	for k < len(row) && k < len(p) && row[k][0] <= p[k] && p[k] <= row[k][1] {
		k++
	}
	return k
}

func TestUTF8FailsAtFirstBadByte(t *testing.T) {
	for _, c := range []struct {
		name, text string
		bad        int // -1: valid
	}{
		{"empty", "", -1},
		{"ascii", "plain text", -1},
		{"every width", "$£€𐍈", -1},
		{"last code point", "\xf4\x8f\xbf\xbf", -1},
		{"NUL", "\x00", -1},
		{"noncharacter U+FFFE", "\xef\xbf\xbe", -1},
		{"lone continuation", "ab\x80", 2},
		{"overlong slash", "\xc0\xaf", 0},
		{"overlong three", "\xe0\x80\xaf", 1},
		{"overlong four", "\xf0\x80\x80\xaf", 1},
		{"surrogate", "\xed\xa0\x80", 1},
		{"beyond the last", "κόσμε\xf4\x90\x80\x80edited", 11},
		{"five bytes", "\xf8\x88\x80\x80\x80", 0},
		{"never a byte", "a\xffb", 1},
		{"start inside a sequence", "\xe2\x82a", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s utf8State
			failed := -1
			for i := range len(c.text) {
				if !s.feed([]byte(c.text[i : i+1])) {
					failed = i
					break
				}
			}
			if failed != c.bad {
				t.Fatalf("failed at byte %d of %q, want %d", failed, c.text, c.bad)
			}
			if c.bad < 0 && !s.complete() {
				t.Fatalf("%q is not complete at its end", c.text)
			}
		})
	}
}

func TestUTF8Unfinished(t *testing.T) {
	for _, text := range []string{"\xc2", "a\xe2", "a\xe2\x82", "\xf0", "\xf0\x90", "\xf0\x90\x8d"} {
		var s utf8State
		if !s.feed([]byte(text)) || s.complete() {
			t.Errorf("%q: want an unfinished text that may go on", text)
		}
	}
}

// randomText is mostly well formed, with a taste for the borders of the table above.
func randomText(rng *rand.Rand, n int) []byte {
	var p []byte
	for len(p) < n {
		switch rng.IntN(12) {
		case 0:
			row := utf8Table[rng.IntN(len(utf8Table))]
			for _, r := range row {
				p = append(p, r[rng.IntN(2)])
			}
		case 1, 2, 3:
			p = utf8.AppendRune(p, rune(rng.IntN(utf8.MaxRune)))
		default:
			p = append(p, byte('a'+rng.IntN(26)))
		}
	}
	return p
}

func TestUTF8AnySplitAgreesWithValid(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		p := randomText(rng, rng.IntN(40))
		if rng.IntN(2) == 0 && len(p) > 0 {
			p[rng.IntN(len(p))] = byte(rng.Uint32())
		}
		checkSplit(t, p, rng.IntN(len(p)+1), rng.IntN(len(p)+1))
	}
}

// checkSplit feeds p in three pieces and compares with utf8.Valid and with the table.
func checkSplit(t *testing.T, p []byte, i, j int) {
	t.Helper()
	if i > j {
		i, j = j, i
	}
	var s utf8State
	fed, ok := 0, true
	for _, piece := range [][]byte{p[:i], p[i:j], p[j:]} {
		if ok = s.feed(piece); !ok {
			break
		}
		fed += len(piece)
		if bad, _ := firstBadByte(p); bad < fed {
			t.Fatalf("%x cut at %d and %d: byte %d is bad but was let through", p, i, j, bad)
		}
	}
	if got := ok && s.complete(); got != utf8.Valid(p) {
		t.Fatalf("%x cut at %d and %d: valid is %v, want %v", p, i, j, got, utf8.Valid(p))
	}
	if _, unfinished := firstBadByte(p); ok && unfinished == s.complete() {
		t.Fatalf("%x cut at %d and %d: complete is %v, want %v", p, i, j, s.complete(), !unfinished)
	}
}

func FuzzUTF8Split(f *testing.F) {
	f.Add([]byte("κόσμε\xf4\x90\x80\x80edited"), uint8(11), uint8(13))
	f.Add([]byte("$£€𐍈"), uint8(2), uint8(7))
	f.Add([]byte("\xed\xa0\x80"), uint8(1), uint8(2))
	f.Fuzz(func(t *testing.T, p []byte, a, b uint8) {
		checkSplit(t, p, min(int(a), len(p)), min(int(b), len(p)))
	})
}

func BenchmarkUTF8(b *testing.B) {
	for _, c := range [][2]string{{"ascii", "push message "}, {"mixed", "Grüße, κόσμε, 你好 "}} {
		name, unit := c[0], c[1]
		text := []byte(strings.Repeat(unit, 4096/len(unit)))
		for _, piece := range []int{len(text), 1000} {
			b.Run(fmt.Sprintf("%s/piece=%d", name, piece), func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					var s utf8State
					for rest := text; len(rest) > 0; {
						k := min(piece, len(rest))
						if !s.feed(rest[:k]) {
							b.Fatal("valid text refused")
						}
						rest = rest[k:]
					}
				}
			})
		}
	}
}
