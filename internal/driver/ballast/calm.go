package ballast

import (
	"runtime"
	"time"
)

// This file is for the opposite of ballast: the heap after a crowd has gone. A heap of 500 MiB is
// collected when it has become one of 1,000 MiB, or after two minutes. If the clients that it was
// for have gone, that is never. So a collection that has left much is followed by another, once
// none has come for a while. If that finds nothing gone, the next waits for twice as long.
const (
	// much is how many bytes of heap and stacks are looked at again, and most how many are not: to
	// collect those takes long.
	much = 8 << 20
	most = 8 << 30
	// soonest and latest bound how long no collection has come before a look.
	soonest = 10 * time.Second
	latest  = 2 * time.Minute
)

// A calm is the time without collections after which there is a look.
type calm struct {
	size    uint64 // what the last collection left
	wait    time.Duration
	looking bool
	timer   *time.Timer // nil: there never was one
}

// next says how long to wait after a collection that has left size bytes, and 0 if there is no need
// to look. looked: it was made by a look.
func (c *calm) next(size uint64, looked bool) time.Duration {
	changed := size > c.size+c.size/3 || size < c.size-c.size/4
	c.size = size
	switch {
	case size < much || size >= most:
		c.wait = 0
	case changed || c.wait == 0:
		c.wait = soonest
	case looked:
		c.wait = min(2*c.wait, latest)
	}
	return c.wait
}

// await has look called unless another collection comes before. Under mu.
func (k *keeper) await(wait time.Duration) {
	switch {
	case wait == 0:
		k.rest()
	case k.quiet.timer == nil:
		k.quiet.timer = time.AfterFunc(wait, k.look)
	default:
		k.quiet.timer.Reset(wait)
	}
}

// rest stops looking. Under mu.
func (k *keeper) rest() {
	if k.quiet.timer != nil {
		k.quiet.timer.Stop()
	}
}

// look collects what has gone since the last collection.
func (k *keeper) look() {
	k.mu.Lock()
	if k.holders == 0 || k.quiet.looking {
		k.mu.Unlock()
		return
	}
	k.quiet.looking = true
	had := k.quiet.size
	k.mu.Unlock()
	runtime.GC()
	runtime.GC() // what is in a sync.Pool survives the first
	if read().size() < had/2 {
		runtime.GC() // only behind another does the runtime give back to the system what has become free
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.quiet.looking = false
	if k.holders > 0 {
		k.await(k.quiet.next(read().size(), true))
	}
}
