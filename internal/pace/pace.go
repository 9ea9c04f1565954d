// Package pace bounds how often something that recurs is reported.
package pace

import (
	"sync"
	"time"
)

// Reports counts events of one kind, such as failed handshakes. The zero value is ready. Any
// goroutine.
type Reports struct {
	mu     sync.Mutex
	n      uint64    // not reported yet
	silent time.Time // no report before
}

// Next counts one event that happens now. due says that it is to be reported, as the first one is
// and then one in each period; n is the number of events since the last report, this one included.
func (r *Reports) Next(now time.Time, period time.Duration) (n uint64, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	n, due = r.n, !now.Before(r.silent)
	if due {
		r.n, r.silent = 0, now.Add(period)
	}
	return n, due
}
