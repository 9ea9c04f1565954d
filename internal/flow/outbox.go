package flow

import (
	"encoding/binary"
	"errors"
	"sync"

	"github.com/myriad-go/myriad/buf"
)

var (
	// ErrFull says that an Outbox is at its limit. Nothing was taken; Cut tells when there is room.
	ErrFull = errors.New("flow: the outbox is full")
	// ErrEnded says that the last bytes were put before.
	ErrEnded = errors.New("flow: the outbox has ended")
)

// An Outbox holds one message for the peer until the loop can send it: heads, then data, then
// trailers. What a head and the trailers look like is their writer's and their reader's business.
// Reset makes the Outbox ready for use.
//
// It holds at most its limit. Beyond that Put takes nothing and returns ErrFull, except that an
// empty Outbox takes a Put of any size.
type Outbox struct {
	mu    sync.Mutex
	heads []byte      // guarded by mu; each behind its length
	data  buf.Chain   // guarded by mu
	tail  []byte      // guarded by mu; trailers
	err   error       // guarded by mu; Fail's argument
	limit int32       // guarded by mu
	state outboxState // guarded by mu
}

type outboxState uint8

const (
	ended     outboxState = 1 << iota // the last bytes are there
	refused                           // ErrFull was returned, and room not yet reported
	wantEmpty                         // and with less than half of the limit queued
	linked                            // the loop knows that something is there
	taken                             // the loop has taken the end
)

// lengthBytes is the size of the length before a head.
const lengthBytes = 4

// Reset drops what is there and makes the Outbox ready for another message. No call may be under
// way.
func (o *Outbox) Reset(limit int) {
	o.heads = o.heads[:0]
	o.data.Release()
	o.tail, o.err, o.limit, o.state = nil, nil, int32(limit), 0
}

// SetLimit changes the limit. H.
func (o *Outbox) SetLimit(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limit = int32(n)
}

// Put adds copies of a head, unless it is nil, and of p, all or nothing. last ends the message.
// tell: the loop does not know yet that something is there. It fails with ErrFull at the limit,
// with ErrEnded after the end, and with Fail's error. H.
func (o *Outbox) Put(head, p []byte, last bool) (tell bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.admit(len(head) + len(p)); err != nil {
		return false, err
	}
	if head != nil {
		o.heads = binary.BigEndian.AppendUint32(o.heads, uint32(len(head)))
		o.heads = append(o.heads, head...)
	}
	o.data.Append(p)
	return o.added(last), nil
}

// PutBlocks is Put for blocks, which it does not copy: it consumes one reference to each, also on
// error. H.
func (o *Outbox) PutBlocks(last bool, blocks ...*buf.Block) (tell bool, err error) {
	n := 0
	for _, b := range blocks {
		n += b.Len()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.admit(n); err != nil {
		for _, b := range blocks {
			b.Release()
		}
		return false, err
	}
	for _, b := range blocks {
		o.data.AppendBlock(b)
	}
	return o.added(last), nil
}

// End ends the message with trailers, unless they are nil. It keeps tail. It never fails with
// ErrFull. H.
func (o *Outbox) End(tail []byte) (tell bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err != nil:
		return false, o.err
	case o.state&ended != 0:
		return false, ErrEnded
	}
	o.tail = tail
	return o.added(true), nil
}

func (o *Outbox) admit(n int) error {
	queued := len(o.heads) + o.data.Len()
	switch {
	case o.err != nil:
		return o.err
	case o.state&ended != 0:
		return ErrEnded
	case queued > 0 && queued+n > int(o.limit):
		o.state |= refused
		if queued <= int(o.limit)/2 {
			o.state |= wantEmpty // the same Put would fail again at half of the limit
		}
		return ErrFull
	}
	return nil
}

func (o *Outbox) added(last bool) (tell bool) {
	if last {
		o.state |= ended
	}
	tell = o.state&linked == 0
	o.state |= linked
	return tell
}

// Visit says what is there: a head, bytes of data, and whether the end or trailers come behind
// them. Put tells of what it adds from then on. L.
func (o *Outbox) Visit() (head bool, data int, end bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state &^= linked
	return len(o.heads) > 0, o.data.Len(), o.state&(ended|taken) == ended
}

// Visited reports whether nothing has been put since Visit. H.
func (o *Outbox) Visited() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state&linked == 0
}

// NextHead takes a head and appends it to dst. ok: there was one. end: it was all, the message ends
// with it. room is as with Cut. L.
func (o *Outbox) NextHead(dst []byte) (head []byte, ok, end, room bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.heads) == 0 {
		return dst, false, false, false
	}
	next := o.heads[lengthBytes:]
	n := int(binary.BigEndian.Uint32(o.heads))
	dst = append(dst, next[:n]...)
	o.heads = append(o.heads[:0], next[n:]...)
	end, room = o.took()
	return dst, true, end, room
}

// Cut moves data to p, as much as there is and fits. end: the message ends with it. room: Put was
// refused, and half of the limit is free now. Heads come first: the caller takes them before. L.
func (o *Outbox) Cut(p []byte) (n int, end, room bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n = o.data.CopyTo(p)
	o.data.Discard(n)
	end, room = o.took()
	return n, end, room
}

// Tail takes the trailers when everything before them has been taken; the message ends with them.
// It returns nil if there are none, or not yet. L.
func (o *Outbox) Tail() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tail == nil || len(o.heads) > 0 || o.data.Len() > 0 {
		return nil
	}
	tail := o.tail
	o.tail = nil
	o.state |= taken
	return tail
}

// took says what it means that something was taken. end: it was the last of a message without
// trailers. room is as with Cut.
func (o *Outbox) took() (end, room bool) {
	queued := len(o.heads) + o.data.Len()
	if end = queued == 0 && o.tail == nil && o.state&(ended|taken) == ended; end {
		o.state |= taken
	}
	return end, o.hasRoom(queued)
}

func (o *Outbox) hasRoom(queued int) bool {
	if o.state&refused == 0 || queued > int(o.limit)/2 || o.state&wantEmpty != 0 && queued > 0 {
		return false
	}
	o.state &^= refused | wantEmpty
	return true
}

// Fail drops what is there. Put fails with err from then on; the first error stays. room is as with
// Cut. L.
func (o *Outbox) Fail(err error) (room bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	o.heads = o.heads[:0]
	o.data.Release()
	o.tail = nil
	return o.hasRoom(0)
}

// Queued returns the number of bytes of heads and data that are there. L or H.
func (o *Outbox) Queued() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.heads) + o.data.Len()
}
