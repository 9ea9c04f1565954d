package websocket

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/buf"
)

func inflated(t testing.TB, p, window []byte, limit int) []byte {
	t.Helper()
	b, err := inflate(p, window, limit)
	if err != nil {
		t.Fatalf("inflate(%x): %v", p, err)
	}
	defer b.Release()
	return append([]byte{}, b.Bytes()...)
}

// The examples of RFC 7692 §7.2.3.
func TestInflateExamples(t *testing.T) {
	const hello = "\xf2\x48\xcd\xc9\xc9\x07\x00"
	for name, c := range map[string]struct{ p, window, want string }{
		"7.2.3.1 one block":      {hello, "", "Hello"},
		"7.2.3.2 sharing":        {"\xf2\x00\x11\x00\x00", "Hello", "Hello"},
		"7.2.3.3 no compression": {"\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00", "", "Hello"},
		"7.2.3.4 a last block":   {"\xf3\x48\xcd\xc9\xc9\x07\x00\x00", "", "Hello"},
		"7.2.3.5 two blocks":     {"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00", "", "Hello"},
		"7.2.3.6 empty":          {"\x00", "", ""},
		"only a last block":      {"\xf3\x48\xcd\xc9\xc9\x07\x00", "", "Hello"},
		"two streams":            {"\xf3\x48\xcd\xc9\xc9\x07\x00" + hello, "", "HelloHello"},
	} {
		if got := inflated(t, []byte(c.p), []byte(c.window), 100); string(got) != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestInflateRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		p     string
		limit int
		code  StatusCode
	}{
		"nothing":           {"", 100, StatusInvalidFramePayloadData},
		"garbage":           {"\xff\xff\xff\xff", 100, StatusInvalidFramePayloadData},
		"cut short":         {"\x00\x05\x00\xfa\xff\x48\x65", 100, StatusInvalidFramePayloadData},
		"beyond the window": {"\xf2\x00\x11\x00\x00", 100, StatusInvalidFramePayloadData},
		"endless streams":   {strings.Repeat("\x03\x00", 500), 100, StatusInvalidFramePayloadData},
		"one byte too many": {"\xf2\x48\xcd\xc9\xc9\x07\x00", 4, StatusMessageTooBig},
	} {
		before := buf.InUse()
		_, err := inflate([]byte(c.p), nil, c.limit)
		var v *violation
		if !errors.As(err, &v) || v.code != c.code {
			t.Errorf("%s: %v, want status %d", name, err, c.code)
		}
		if buf.InUse() != before {
			t.Errorf("%s: a block is left", name)
		}
	}
	if got := inflated(t, []byte("\xf2\x48\xcd\xc9\xc9\x07\x00"), nil, 5); string(got) != "Hello" {
		t.Errorf("at the limit: %q", got)
	}
	// the tail has the end of its final block
	if got := inflated(t, []byte("\x630000"), nil, 5); string(got) != "\x000000" {
		t.Errorf("a final block that ends in the tail: %q", got)
	}
}

// A bomb of 64 MiB costs no more than its limit, and a little.
func TestInflateBomb(t *testing.T) {
	const limit = 1 << 20
	d := deflate(make([]byte, 64<<20), nil, 9, maxWindowBits)
	bomb := bytes.Clone(d.out)
	d.put()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := inflate(bomb, nil, limit); CloseStatus(err) != StatusMessageTooBig {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 3*limit {
		t.Errorf("%d bytes were allocated for a bomb with a limit of %d", got, limit)
	}
}

// text is about as compressible as what people send.
func sampleText(rng *rand.Rand, n int) []byte {
	words := strings.Fields(`{"type": "trade", "symbol": "EURUSD", "price": 1.0842, "volume": 100000, ` +
		`"side": "buy" } null true the quick fox`)
	var b []byte
	for len(b) < n {
		b = append(append(b, words[rng.IntN(len(words))]...), ' ')
		if rng.IntN(4) == 0 {
			b = fmt.Append(b, rng.Uint32())
		}
	}
	return b[:n]
}

// Every level, window and way to refer to earlier messages gives back what went in, and reaches no
// further than was agreed.
func TestDeflateRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	for level := 1; level <= maxLevel; level++ {
		for bits := uint8(minWindowBits); bits <= maxWindowBits; bits++ {
			for _, takeover := range []bool{false, true} {
				var out, in []byte
				for range 6 {
					p := sampleText(rng, rng.IntN([]int{10, 300, 5000, 80_000}[rng.IntN(4)]))
					d := deflate(p, out, level, bits)
					packed := bytes.Clone(d.out)
					d.put()
					if reach, ok := furthest(packed); !ok || reach > 1<<bits {
						t.Fatalf("level %d, %d bits: a reference reaches %d bytes back (%v)", level, bits, reach, ok)
					}
					got := inflated(t, packed, in, len(p)+1)
					if !bytes.Equal(got, p) {
						t.Fatalf("level %d, %d bits, takeover %v: %d bytes became other %d", level, bits, takeover,
							len(p), len(got))
					}
					if takeover {
						out, in = slide(out, p, 1<<bits), slide(in, got, 1<<bits)
					}
				}
			}
		}
	}
}

func TestDeflateNeverEndsEmpty(t *testing.T) {
	d := deflate(nil, nil, 1, maxWindowBits)
	defer d.put()
	if len(d.out) == 0 || len(inflated(t, d.out, nil, 10)) != 0 {
		t.Errorf("an empty message is %x", d.out)
	}
}

func TestSlide(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	const size = 256
	var window, all []byte
	for range 500 {
		p := sampleText(rng, rng.IntN(90))
		if rng.IntN(20) == 0 {
			p = sampleText(rng, rng.IntN(3*size))
		}
		window, all = slide(window, p, size), append(all, p...)
		if want := all[max(0, len(all)-size):]; !bytes.Equal(window, want) || cap(window) > size {
			t.Fatalf("window %q with room for %d, want %q", window, cap(window), want)
		}
	}
}

func FuzzInflate(f *testing.F) {
	f.Add([]byte("\xf2\x48\xcd\xc9\xc9\x07\x00"), []byte("Hello"), 100)
	f.Add([]byte("\x03\x00\xf3\x48\xcd\xc9\xc9\x07\x00"), []byte{}, 3)
	f.Fuzz(func(t *testing.T, p, window []byte, limit int) {
		limit = 1 + limit&0xffff
		b, err := inflate(p, window, limit)
		if err != nil {
			if CloseStatus(err) == 0 {
				t.Fatalf("an error without a status: %v", err)
			}
			return
		}
		defer b.Release()
		if b.Len() > limit {
			t.Fatalf("%d bytes above the limit of %d", b.Len(), limit)
		}
		d := deflate(b.Bytes(), window, 1+limit%maxLevel, uint8(minWindowBits+limit%8))
		defer d.put()
		if got := inflated(t, d.out, window, b.Len()+1); !bytes.Equal(got, b.Bytes()) {
			t.Fatal("the way back gives other bytes")
		}
	})
}

func BenchmarkDeflate(b *testing.B) {
	p := sampleText(rand.New(rand.NewPCG(3, 3)), 1024)
	for _, level := range []int{1, 6} {
		b.Run(fmt.Sprint("level ", level), func(b *testing.B) {
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			for b.Loop() {
				deflate(p, nil, level, maxWindowBits).put()
			}
		})
	}
	b.Run("with a window", func(b *testing.B) {
		window := sampleText(rand.New(rand.NewPCG(4, 4)), 1<<12)
		b.SetBytes(int64(len(p)))
		b.ReportAllocs()
		for b.Loop() {
			deflate(p, window, 1, maxWindowBits).put()
		}
	})
}

func BenchmarkInflate(b *testing.B) {
	d := deflate(sampleText(rand.New(rand.NewPCG(3, 3)), 1024), nil, 1, maxWindowBits)
	defer d.put()
	b.SetBytes(1024)
	b.ReportAllocs()
	for b.Loop() {
		out, err := inflate(d.out, nil, 1<<20)
		must(b, err)
		out.Release()
	}
}
