package websocket

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
)

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
