package resp

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"github.com/myriad-go/myriad/internal/driver"
)

// A call is one command of a client, from Do or Start to its end. It has one owner at a time: the
// goroutine that makes it, the link where it waits, the connection on which it was sent.
type call struct {
	client  *Client
	request []byte
	queued  int                      // how much of request the connection has taken
	cut     int                      // connections that have ended when they had taken a part of it
	done    func(v Value, err error) // of Start
	waits   bool                     // Do waits
	parker  driver.Parker
	v       Value
	err     error
	state   atomic.Uint32
	// at is where the call waits to be sent; nil: it does not. It is changed under that link's mu.
	at         atomic.Pointer[link]
	prev, next *call // in link.waiting
}

// The states of a call that Do waits for.
const (
	callWaits uint32 = iota
	callEnded        // v and err are set
	callLeft         // Do has gone: the reply is dropped, and the call is not used again
)

// keptRequest is the longest request whose memory is kept for a later one.
const keptRequest = 4 << 10

func (c *Client) newCall() *call {
	k, _ := c.calls.Get().(*call)
	if k == nil {
		k = &call{client: c}
	}
	return k
}

// free gives the call back.
func (k *call) free() {
	if cap(k.request) > keptRequest {
		k.request = nil
	}
	k.done, k.waits, k.v, k.err, k.queued, k.cut = nil, false, Value{}, nil, 0, 0
	k.state.Store(callWaits)
	k.client.calls.Put(k)
}

// end is called once for each call, with nothing held. v is valid until it returns.
func (k *call) end(v Value, err error) {
	if err == nil {
		err = v.Err()
	}
	if !k.waits {
		done := k.done
		client := k.client
		k.free()
		client.callBack(func() { done(v, err) })
		return
	}
	if k.state.Load() == callLeft {
		return
	}
	k.v, k.err = v.Clone(), err
	if k.state.CompareAndSwap(callWaits, callEnded) {
		k.parker.Unpark()
	}
}

func endAll(calls []*call, err error) {
	for _, k := range calls {
		k.end(Value{}, err)
	}
}

// callBack runs a callback of the user's.
func (c *Client) callBack(f func()) {
	defer func() {
		if v := recover(); v != nil {
			c.logger().Error("resp: panic in a callback", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	f()
}

// wait is Do's wait. The parker may have a permit of an earlier call, so that the state decides.
// Each end gives a permit, which is taken even if the call has ended already: the next call that
// has this parker would find it.
func (k *call) wait(ctx context.Context) (Value, error) {
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, k.parker.Unpark)()
	}
	for {
		k.parker.Park()
		if k.state.Load() == callEnded {
			v, err := k.v, k.err
			k.free()
			return v, err
		}
		if ctx.Err() != nil && k.state.CompareAndSwap(callWaits, callLeft) {
			if l := k.at.Load(); l != nil {
				l.leave(k)
			}
			return Value{}, fmt.Errorf("resp: the command has no reply yet: %w", context.Cause(ctx))
		}
	}
}

// A callList is calls in order, linked by themselves.
type callList struct {
	first, last *call
	n           int
}

func (q *callList) push(k *call) {
	k.prev = q.last
	if q.last != nil {
		q.last.next = k
	} else {
		q.first = k
	}
	q.last = k
	q.n++
}

func (q *callList) remove(k *call) {
	if k.prev != nil {
		k.prev.next = k.next
	} else {
		q.first = k.next
	}
	if k.next != nil {
		k.next.prev = k.prev
	} else {
		q.last = k.prev
	}
	k.prev, k.next = nil, nil
	q.n--
}

// A callQueue is calls in order, in a ring.
type callQueue struct {
	ring []*call
	head int
	n    int
}

func (q *callQueue) push(k *call) {
	if q.n == len(q.ring) {
		larger := make([]*call, max(16, 2*q.n))
		for i := range q.n {
			larger[i] = q.ring[(q.head+i)%len(q.ring)]
		}
		q.ring, q.head = larger, 0
	}
	q.ring[(q.head+q.n)%len(q.ring)] = k
	q.n++
}

func (q *callQueue) pop() *call {
	if q.n == 0 {
		return nil
	}
	k := q.ring[q.head]
	q.ring[q.head] = nil
	q.head = (q.head + 1) % len(q.ring)
	if q.n--; q.n == 0 && len(q.ring) > keptCalls {
		*q = callQueue{} // after a burst
	}
	return k
}

// keptCalls is the most places of a callQueue that it keeps when it is empty.
const keptCalls = 1 << 10

// take empties q into a list.
func (q *callQueue) take() []*call {
	all := make([]*call, 0, q.n)
	for q.n > 0 {
		all = append(all, q.pop())
	}
	return all
}
