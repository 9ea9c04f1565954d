// Command goroutines starts a goroutine for each task: no pool, and no bound.
package main

import "github.com/myriad-go/myriad/bench/servers/harness"

func main() {
	harness.MainWith(nil, map[string]harness.Work{"tasks": harness.Tasks(func(harness.Order) (harness.Pool, error) {
		return harness.Pool{Submit: func(f func()) { go f() }}, nil
	})})
}
