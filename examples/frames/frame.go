package main

import (
	"encoding/binary"
	"fmt"

	"github.com/myriad-go/myriad/buf"
)

// A frame is a length of four bytes, most significant first, and a payload of that length.
const (
	headLen    = 4
	maxPayload = 64 << 10
)

// newFrame returns a frame with this payload. The caller owns its only reference.
func newFrame(payload string) *buf.Block {
	b := buf.Get(headLen + len(payload))
	p := binary.BigEndian.AppendUint32(b.Extend()[:0], uint32(len(payload)))
	b.Commit(len(append(p, payload...)))
	return b
}

// nextFrame removes the first frame from in and returns it with its header. It returns nil if the
// frame is incomplete.
func nextFrame(in *buf.Chain) (*buf.Block, error) {
	var head [headLen]byte
	if in.CopyTo(head[:]) < headLen {
		return nil, nil
	}
	length := binary.BigEndian.Uint32(head[:])
	if length > maxPayload {
		return nil, fmt.Errorf("frames: a frame of %d bytes; the limit is %d", length, maxPayload)
	}
	n := headLen + int(length)
	if in.Len() < n {
		return nil, nil
	}
	frame := buf.Get(n)
	frame.Commit(in.CopyTo(frame.Extend()[:n]))
	in.Discard(n)
	return frame, nil
}
