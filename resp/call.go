package resp

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"github.com/myriad-go/myriad/internal/driver"
)

// A call is one command of a client, from Do or Start to its end.
type call struct {
	client  *Client
	request []byte
	queued  int                      // how much of request the connection has taken
	done    func(v Value, err error) // of Start
	waits   bool                     // Do waits
	parker  driver.Parker
	v       Value
	err     error
	state   atomic.Uint32
}

// The states of a call that Do waits for.
const (
	callWaits uint32 = iota
	callEnded        // v and err are set
	callLeft         // Do has gone: the link drops the reply
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
	k.done, k.waits, k.v, k.err, k.queued = nil, false, Value{}, nil, 0
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
	k.v, k.err = v.Clone(), err
	if k.state.CompareAndSwap(callWaits, callEnded) {
		k.parker.Unpark()
		return
	}
	k.free()
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
func (k *call) wait(ctx context.Context) (Value, error) {
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, k.parker.Unpark)()
	}
	for k.state.Load() == callWaits {
		if ctx.Err() != nil && k.state.CompareAndSwap(callWaits, callLeft) {
			return Value{}, fmt.Errorf("resp: the command has no reply yet: %w", context.Cause(ctx))
		}
		k.parker.Park()
	}
	v, err := k.v, k.err
	k.free()
	return v, err
}
