package workers_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/myriad-go/myriad/workers"
)

func Example() {
	pool := workers.New(workers.Config{Workers: 100})
	var sum atomic.Int64
	for i := range 1000 {
		if err := pool.Go(context.Background(), func() { sum.Add(int64(i)) }); err != nil {
			fmt.Println(err)
		}
	}
	if err := pool.Close(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(sum.Load(), pool.TryGo(func() {}))
	// Output: 499500 false
}
