package websocket

import (
	"encoding/binary"
	"math/bits"
)

// mask applies the masking of RFC 6455 §5.3 to p in place. The same call masks and unmasks. The key
// holds the four wire bytes in little-endian order: its lowest byte belongs to p[0]. The result is
// the key for the byte after p, so that a payload which arrives in pieces is unmasked piece by
// piece.
//
// https://www.rfc-editor.org/rfc/rfc6455#section-5.3
func mask(p []byte, key uint32) uint32 {
	next := bits.RotateLeft32(key, -8*(len(p)&3))
	wide := uint64(key)<<32 | uint64(key)
	p = maskBlocks(p, wide)
	for len(p) >= 8 {
		xorWord(p, wide)
		p = p[8:]
	}
	for i := range p {
		p[i] ^= byte(wide)
		wide >>= 8
	}
	return next
}

// maskBlocks takes 64 bytes a turn and returns the rest. Eight independent words keep the load and
// store units busy; going through an array pointer leaves a single bounds check for all of them.
func maskBlocks(p []byte, wide uint64) []byte {
	for len(p) >= 64 {
		b := (*[64]byte)(p)
		xorWord(b[0:8], wide)
		xorWord(b[8:16], wide)
		xorWord(b[16:24], wide)
		xorWord(b[24:32], wide)
		xorWord(b[32:40], wide)
		xorWord(b[40:48], wide)
		xorWord(b[48:56], wide)
		xorWord(b[56:64], wide)
		p = p[64:]
	}
	return p
}

func xorWord(p []byte, wide uint64) {
	binary.LittleEndian.PutUint64(p, binary.LittleEndian.Uint64(p)^wide)
}
