// Package outbox keeps the messages that a slow receiver has no room for, and decides what happens
// to them. The connections of websocket and resp and the subscribers of server/push share it.
//
// A receiver has a transport with a limit of its own: the engine's queue, most often. As long as
// the transport takes messages and nothing waits, the Outbox is not asked. When the transport
// refuses a message, [Outbox.Put] applies the receiver's [Policy], and the [Verdict] says what its
// user does:
//
//	if !o.Waits() {
//		if err := send(m); !errors.Is(err, myriad.ErrFull) {
//			return err
//		}
//	}
//	switch o.Put(m, rules) { … }
//
// When the transport has room again, its user hands out what waits, oldest first, and then lets the
// goroutines that wait try again:
//
//	for o.Waits() && send(o.First()) == nil {
//		o.Sent()
//	}
//	o.Wake()
//	if o.Relieved() {
//		onDrained()
//	}
//
// An Outbox holds encoded messages by reference: all receivers of a broadcast share one encoding.
// It has no lock, goroutine or clock. Its owner is the lock of the receiver, under which every
// method is called. All methods that only ask may be called on a nil *Outbox, so that a receiver
// that has never been slow needs none.
package outbox

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/myriad-go/myriad/internal/driver"
)

// A Policy says what happens to a message that the receiver's transport has no room for. The
// packages that serve users call it Overflow.
type Policy uint8

const (
	Block      Policy = iota // the sender waits for room
	Fail                     // the message is refused
	DropNewest               // the message is dropped
	DropOldest               // the message waits, and those that have waited longest are dropped
	Latest                   // the message waits in the place of the one that waits, or that has its key
	Close                    // the receiver is disconnected
	Sample                   // messages wait, evenly thinned out

	Policies // how many there are
)

var names = [Policies]string{"block", "fail", "drop newest", "drop oldest", "latest", "close", "sample"}

// String is the policy in words.
func (p Policy) String() string {
	if p < Policies {
		return names[p]
	}
	return fmt.Sprintf("Overflow(%d)", uint8(p))
}

// Queues reports whether messages wait in the Outbox, where they can be dropped.
func (p Policy) Queues() bool { return p == DropOldest || p == Latest || p == Sample }

// Split divides a receiver's limit in bytes between its transport, of which nothing is dropped, and
// the messages that wait. The transport has all of it, or half for a policy that queues.
func (p Policy) Split(limit int) (transport, room int) {
	if !p.Queues() {
		return limit, 0
	}
	transport = max(1, limit/2)
	return transport, limit - transport
}

// A Message is encoded and shared by all receivers: a *buf.Block, or a type that has one.
type Message interface {
	Len() int // bytes; constant
	Release() // gives up one reference
}

// A Keyed message replaces only messages with an equal key under Latest. Messages that are not
// Keyed replace each other.
type Keyed interface {
	Message
	Key() string
}

// Rules are what Put goes by. They are the user's, who may give other ones with each call.
type Rules struct {
	Policy Policy
	Room   int     // bytes that may wait; a single message may be larger
	Counts *Counts // of all receivers that share it; nil: nothing is counted
}

// Counts are counters of many receivers. Any goroutine.
type Counts struct {
	Refused      atomic.Uint64 // messages
	Waited       atomic.Uint64 // messages whose sender waited; the user of the Outbox counts them
	Dropped      atomic.Uint64 // messages, with those that were conflated
	DroppedBytes atomic.Uint64
	Conflated    atomic.Uint64 // messages that a newer one has replaced (Latest)
	Closed       atomic.Uint64 // receivers
}

// A Verdict says what has happened to a message, or what is to happen.
type Verdict uint8

const (
	Kept    Verdict = iota // it waits, perhaps in the place of others, which were dropped
	Dropped                // it was dropped
	Refused                // the sender is to be told that there is no room
	Blocked                // the sender waits (Await), then tries again
	Closes                 // the user disconnects the receiver, and calls End
)

// An Outbox is the messages that wait for one receiver. Its zero value is ready for use.
type Outbox[M Message] struct {
	waiting []M // oldest first
	writers []driver.Parker
	bytes   int // of waiting
	dropped uint64
	missed  bool // a message was refused or dropped since Relieved

	// Of Sample: every stride-th message is kept. gap is how many came after the last of these; the
	// newest of them waits, too, until a newer one comes.
	stride, gap uint32
}

// Waits reports whether messages wait. A newer one has to wait behind them.
func (o *Outbox[M]) Waits() bool { return o != nil && len(o.waiting) > 0 }

// Len is how many messages wait.
func (o *Outbox[M]) Len() int {
	if o == nil {
		return 0
	}
	return len(o.waiting)
}

// Bytes is the size of the messages that wait.
func (o *Outbox[M]) Bytes() int {
	if o == nil {
		return 0
	}
	return o.bytes
}

// Dropped is how many messages this receiver has missed because they were dropped.
func (o *Outbox[M]) Dropped() uint64 {
	if o == nil {
		return 0
	}
	return o.dropped
}

// Empty reports whether nothing is lost with the Outbox: nothing waits, and nothing was dropped.
func (o *Outbox[M]) Empty() bool {
	return o == nil || len(o.waiting) == 0 && len(o.writers) == 0 && o.dropped == 0 && !o.missed
}

// Put decides about a message that the transport has no room for, or that comes behind others that
// wait. It consumes one reference of m.
func (o *Outbox[M]) Put(m M, r Rules) Verdict {
	switch r.Policy {
	case DropOldest:
		o.push(m)
		o.dropAbove(r)
	case Latest:
		o.replace(m, r)
		o.dropAbove(r)
	case Sample:
		o.sample(m, r)
	case DropNewest:
		o.drop(m, r.Counts)
		return Dropped
	case Close:
		m.Release()
		if r.Counts != nil {
			r.Counts.Closed.Add(1)
		}
		return Closes
	case Block:
		m.Release()
		return Blocked
	default:
		m.Release()
		o.Refuse(r.Counts)
		return Refused
	}
	return Kept
}

// Refuse notes that a message was refused, with a nil Counts only for this receiver.
func (o *Outbox[M]) Refuse(n *Counts) {
	o.missed = true
	if n != nil {
		n.Refused.Add(1)
	}
}

func (o *Outbox[M]) push(m M) {
	o.waiting = append(o.waiting, m)
	o.bytes += m.Len()
}

// dropAbove drops the messages that have waited longest, until the rest fits. The newest stays.
func (o *Outbox[M]) dropAbove(r Rules) {
	for len(o.waiting) > 1 && o.bytes > r.Room {
		o.drop(o.shift(), r.Counts)
	}
}

// replace puts m in the place of the message with its key. It keeps the older message's turn, so
// that a key that changes often is not sent later than the others. Another policy may have kept
// several messages with this key: m replaces all of them, because none may come behind it.
func (o *Outbox[M]) replace(m M, r Rules) {
	key, keyed := keyOf(m)
	replaced := false
	for i := 0; i < len(o.waiting); i++ {
		other := o.waiting[i]
		if k, ok := keyOf(other); k != key || ok != keyed {
			continue
		}
		o.bytes -= other.Len()
		if replaced {
			o.waiting = slices.Delete(o.waiting, i, i+1)
			i--
		} else {
			o.waiting[i] = m
			o.bytes += m.Len()
		}
		replaced = true
		if r.Counts != nil {
			r.Counts.Conflated.Add(1)
		}
		o.drop(other, r.Counts)
	}
	if !replaced {
		o.push(m)
	}
}

func keyOf[M Message](m M) (key string, keyed bool) {
	if _, keyed := any(m).(Keyed); !keyed {
		return "", false // m has stayed on the stack; the call of Key lets it escape
	}
	return any(m).(Keyed).Key(), true
}

// maxStride bounds how far apart the messages are that Sample keeps.
const maxStride = 1 << 20

// sample keeps every stride-th message, and the newest. When they exceed the room, every second one
// is dropped, and the stride is twice as long until nothing waits.
func (o *Outbox[M]) sample(m M, r Rules) {
	last := len(o.waiting) - 1
	switch {
	case last < 0:
		o.stride, o.gap = 1, 0
	case o.gap > 0: // the newest is closer than stride to the one before it
		other := o.waiting[last]
		o.waiting = o.waiting[:last]
		o.bytes -= other.Len()
		o.drop(other, r.Counts)
	}
	o.push(m)
	if o.gap++; o.gap >= o.stride {
		o.gap = 0
	}
	for len(o.waiting) > 1 && o.bytes > r.Room {
		o.thin(r.Counts)
	}
}

// thin drops every second message, and keeps the oldest and the newest. Of two it keeps the newest.
func (o *Outbox[M]) thin(n *Counts) {
	if len(o.waiting) == 2 {
		o.drop(o.shift(), n)
		o.gap = 0
		return
	}
	newest := len(o.waiting) - 1
	regular := newest // the last one that is a stride behind the one before it
	if o.gap > 0 {
		regular--
	}
	kept := o.waiting[:0]
	for i, m := range o.waiting {
		if i == newest || i <= regular && i%2 == 0 {
			kept = append(kept, m)
			continue
		}
		o.bytes -= m.Len()
		o.drop(m, n)
	}
	clear(o.waiting[len(kept):])
	o.waiting = kept
	if regular%2 == 1 {
		o.gap += o.stride
	}
	o.stride = min(2*o.stride, maxStride)
}

// drop counts a message that this receiver misses, and releases it.
func (o *Outbox[M]) drop(m M, n *Counts) {
	if n != nil {
		n.Dropped.Add(1)
		n.DroppedBytes.Add(uint64(m.Len()))
	}
	o.dropped++
	o.missed = true
	m.Release()
}

// First is the message that has waited longest. One must wait. The reference stays the Outbox's.
func (o *Outbox[M]) First() M { return o.waiting[0] }

// Sent takes the first message out and releases it: the transport has it, or it is no longer wanted
// more. It is not counted as dropped.
func (o *Outbox[M]) Sent() { o.shift().Release() }

// DropFirst takes the first message out, and counts it as dropped.
func (o *Outbox[M]) DropFirst(n *Counts) { o.drop(o.shift(), n) }

func (o *Outbox[M]) shift() M {
	m := o.waiting[0]
	var none M
	o.waiting[0] = none
	o.bytes -= m.Len()
	if o.waiting = o.waiting[1:]; len(o.waiting) == 0 {
		o.waiting = nil
	}
	return m
}

// Await has Wake unpark w, once. The same w may wait again.
func (o *Outbox[M]) Await(w driver.Parker) { o.writers = append(o.writers, w) }

// Forget takes back an Await whose goroutine waits no more.
func (o *Outbox[M]) Forget(w driver.Parker) {
	if o == nil {
		return
	}
	for i, other := range o.writers {
		if other == w {
			o.writers = append(o.writers[:i], o.writers[i+1:]...)
			return
		}
	}
}

// Waiters is how many senders wait.
func (o *Outbox[M]) Waiters() int {
	if o == nil {
		return 0
	}
	return len(o.writers)
}

// Wake lets all senders that wait try again: there is room, or the receiver has ended.
func (o *Outbox[M]) Wake() {
	if o == nil {
		return
	}
	for _, w := range o.writers {
		w.Unpark()
	}
	o.writers = nil
}

// Relieved reports whether nothing waits any more after a message was refused or dropped. It
// reports that once.
func (o *Outbox[M]) Relieved() bool {
	if o == nil || !o.missed || len(o.waiting) > 0 {
		return false
	}
	o.missed = false
	return true
}

// End releases what waits, uncounted, and wakes the senders. It is for the end of the receiver.
func (o *Outbox[M]) End() {
	for o.Waits() {
		o.Sent()
	}
	o.Wake()
}
