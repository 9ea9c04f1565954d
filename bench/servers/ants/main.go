// Command ants is a pool of github.com/panjf2000/ants with its default settings.
package main

import (
	"github.com/panjf2000/ants/v2"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

func main() {
	harness.MainWith(nil, map[string]harness.Work{"tasks": harness.Tasks(func(o harness.Order) (harness.Pool, error) {
		pool, err := ants.NewPool(o.Capacity)
		if err != nil {
			return harness.Pool{}, err
		}
		return harness.Pool{
			Submit: func(f func()) {
				if err := pool.Submit(f); err != nil {
					harness.Ended(err)
				}
			},
			Close: pool.Release,
		}, nil
	})})
}
