// Command pond is a pool of github.com/alitto/pond whose queue is bounded like its workers.
package main

import (
	"github.com/alitto/pond/v2"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

func main() {
	harness.MainWith(nil, map[string]harness.Work{"tasks": harness.Tasks(func(o harness.Order) (harness.Pool, error) {
		pool := pond.NewPool(o.Capacity, pond.WithQueueSize(o.Capacity))
		return harness.Pool{
			Submit: func(f func()) {
				if err := pool.Go(f); err != nil {
					harness.Ended(err)
				}
			},
			Close: pool.StopAndWait,
		}, nil
	})})
}
