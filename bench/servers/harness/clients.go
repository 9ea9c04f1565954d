package harness

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A Fetch sends one request and reads the whole answer, on the calling goroutine.
type Fetch func(url string) error

// Clients is a Work that sends requests from goroutines: Order.Times of them, Order.Capacity at a
// time. Url gives the address for Order.Sleep, the time that the server takes.
func Clients(open func(o Order) (Fetch, func(), error), url func(time.Duration) string) Work {
	return func(o Order) (Report, error) {
		fetch, end, err := open(o)
		if err != nil {
			return Report{}, err
		}
		defer end()
		address := url(o.Sleep)
		var done, next atomic.Int64
		var failed atomic.Pointer[error]
		var wg sync.WaitGroup
		watch := Goroutines()
		for range min(o.Capacity, o.Times) {
			wg.Go(func() {
				for next.Add(1) <= int64(o.Times) {
					if err := fetch(address); err != nil {
						failed.Store(&err)
						continue
					}
					done.Add(1)
				}
			})
		}
		wg.Wait()
		r := Report{Done: int(done.Load()), Goroutines: watch()}
		if err := failed.Load(); err != nil {
			return r, fmt.Errorf("%d requests of %d succeeded: %w", r.Done, o.Times, *err)
		}
		return r, nil
	}
}

// Goroutines looks at the number of goroutines every 50 ms until the function that it returns is
// called, which returns the largest.
func Goroutines() (most func() int) {
	over, result := make(chan struct{}), make(chan int)
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for n := runtime.NumGoroutine(); ; {
			select {
			case <-over:
				result <- n
				return
			case <-tick.C:
				n = max(n, runtime.NumGoroutine())
			}
		}
	}()
	return func() int {
		close(over)
		return <-result
	}
}
