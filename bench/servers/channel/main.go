// Command channel is the simplest pool in Go: a channel of tasks and eight goroutines. It suits
// tasks that do not wait.
package main

import (
	"sync"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

const goroutines = 8

func main() {
	harness.MainWith(nil, map[string]harness.Work{"tasks": harness.Tasks(func(o harness.Order) (harness.Pool, error) {
		tasks := make(chan func(), o.Capacity)
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for f := range tasks {
					f()
				}
			})
		}
		return harness.Pool{
			Submit: func(f func()) { tasks <- f },
			Close: func() {
				close(tasks)
				all.Wait()
			},
		}, nil
	})})
}
