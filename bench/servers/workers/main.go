// Command workers is a pool of package workers, to which tasks are handed one by one or, with
// --batch, several at once.
package main

import (
	"context"
	"flag"

	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/myriad-go/myriad/workers"
)

func main() {
	batch := flag.Bool("batch", false, "submit with TryGoAll")
	harness.MainWith(nil, map[string]harness.Work{"tasks": harness.Tasks(func(o harness.Order) (harness.Pool, error) {
		pool := workers.New(workers.Config{Workers: o.Capacity, Queue: min(o.Capacity, workers.DefaultQueue)})
		p := harness.Pool{
			Submit: func(f func()) {
				if err := pool.Go(context.Background(), f); err != nil {
					harness.Ended(err)
				}
			},
			Close: func() { _ = pool.Close(context.Background()) }, // the context does not end
		}
		if *batch {
			p.SubmitAll = func(fs []func()) {
				for fs = fs[pool.TryGoAll(fs):]; len(fs) > 0; fs = fs[pool.TryGoAll(fs):] {
					p.Submit(fs[0]) // waits for room
					fs = fs[1:]
				}
			}
		}
		return p, nil
	})})
}
