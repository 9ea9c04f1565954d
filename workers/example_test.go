package workers_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

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

// GoTimeout returns an error if the pool has no room in time.
func ExamplePool_GoTimeout() {
	pool := workers.New(workers.Config{Workers: 1, Queue: 1})
	begun, release := make(chan struct{}), make(chan struct{})
	pool.TryGo(func() { close(begun); <-release })
	<-begun
	fmt.Println(pool.TryGo(func() { fmt.Println("the second") }))
	fmt.Println(pool.GoTimeout(func() { fmt.Println("the third") }, time.Millisecond))
	close(release)
	pool.Close(context.Background())
	// Output:
	// true
	// workers: no room within the timeout
	// the second
}

// TryGoAll submits all tasks of one poll or request together, with one lock and one wake-up.
func ExamplePool_TryGoAll() {
	pool := workers.New(workers.Config{Workers: 1, Queue: 2})
	begun, release := make(chan struct{}), make(chan struct{})
	pool.TryGo(func() { close(begun); <-release })
	<-begun
	batch := []func(){
		func() { fmt.Println("one") },
		func() { fmt.Println("two") },
		func() { fmt.Println("three") },
	}
	fmt.Println("accepted", pool.TryGoAll(batch))
	close(release)
	pool.Close(context.Background())
	// Output:
	// accepted 2
	// one
	// two
}

func ExampleSubmit() {
	pool := workers.New(workers.Config{})
	ctx := context.Background()
	length := workers.Submit(ctx, pool, func(context.Context) (int, error) { return len("myriad"), nil })
	broken := workers.Submit(ctx, pool, func(context.Context) (int, error) { panic("out of ideas") })

	fmt.Println(length.Wait(ctx))
	_, err := broken.Wait(ctx)
	var panicked *workers.PanicError
	fmt.Println(err, errors.As(err, &panicked))
	pool.Close(ctx)
	// Output:
	// 6 <nil>
	// workers: the task panicked: out of ideas true
}

// A handler that has no place for a job says so at once. The job of a client that has one runs to
// its end, and is cancelled if the client leaves: its context is the request's.
func ExampleTrySubmit() {
	pool := workers.New(workers.Config{Workers: 1, Queue: 1})
	begun, release := make(chan struct{}), make(chan struct{})
	pool.TryGo(func() { close(begun); <-release })
	<-begun
	thumbnail := func(ctx context.Context) (string, error) { return "64x64", ctx.Err() }
	handle := func(r *http.Request) (status int, result *workers.Future[string]) {
		result, ok := workers.TrySubmit(r.Context(), pool, thumbnail)
		if !ok {
			return http.StatusServiceUnavailable, nil // with a Retry-After
		}
		return http.StatusOK, result
	}
	status, first := handle(httptest.NewRequest("GET", "/", nil))
	busy, _ := handle(httptest.NewRequest("GET", "/", nil))
	close(release)
	size, err := first.Wait(context.Background())
	fmt.Println(status, busy, size, err)
	pool.Close(context.Background())
	// Output: 200 503 64x64 <nil>
}

// SubmitTimeout waits for a place, for a time that does not end the job.
func ExampleSubmitTimeout() {
	pool := workers.New(workers.Config{Workers: 1, Queue: 1})
	ctx, release := context.Background(), make(chan struct{})
	slow := func(ctx context.Context) (string, error) {
		<-release // takes longer than the wait for a place may take
		return "done", ctx.Err()
	}
	first := workers.SubmitTimeout(ctx, pool, slow, time.Millisecond)
	second := workers.SubmitTimeout(ctx, pool, slow, time.Millisecond)
	third := workers.SubmitTimeout(ctx, pool, slow, time.Millisecond)
	close(release)
	for _, u := range []*workers.Future[string]{first, second, third} {
		fmt.Println(u.Wait(ctx))
	}
	pool.Close(ctx)
	// Output:
	// done <nil>
	// done <nil>
	//  workers: task not accepted before its context ended: workers: no room within the timeout
}

// quota is an Executor: what one customer may have of a pool at a time, waiting or running.
type quota struct {
	pool   *workers.Pool
	places chan struct{}
}

func (q quota) Go(ctx context.Context, f func()) error {
	select {
	case q.places <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := q.pool.Go(ctx, func() { defer q.leave(); f() }); err != nil {
		q.leave()
		return err
	}
	return nil
}

func (q quota) TryGo(f func()) bool {
	select {
	case q.places <- struct{}{}:
	default:
		return false
	}
	if q.pool.TryGo(func() { defer q.leave(); f() }) {
		return true
	}
	q.leave()
	return false
}

func (q quota) leave() { <-q.places }

// An Executor of one's own bounds what a customer may have in a pool that many share.
func ExampleExecutor() {
	pool := workers.New(workers.Config{})
	ann := quota{pool, make(chan struct{}, 2)}
	ctx, release := context.Background(), make(chan struct{})
	job := func(context.Context) (int, error) { <-release; return 7, nil }
	first := workers.Submit(ctx, ann, job)
	_, second := workers.TrySubmit(ctx, ann, job)
	_, third := workers.TrySubmit(ctx, ann, job)
	close(release)
	fmt.Println(second, third)
	fmt.Println(first.Wait(ctx))
	pool.Close(ctx)
	// Output:
	// true false
	// 7 <nil>
}

// A key refuses at once when its own backlog is full, and gives results.
func ExampleKey_TryGo() {
	pool := workers.New(workers.Config{})
	users := workers.NewKeyed[string](pool, workers.KeyedConfig{Backlog: 1})
	ann := users.Key("ann")
	begun, release := make(chan struct{}), make(chan struct{})
	fmt.Println(ann.TryGo(func() { close(begun); <-release }))
	<-begun
	fmt.Println(ann.TryGo(func() { fmt.Println("the second") }))
	fmt.Println(ann.TryGo(func() { fmt.Println("the third") }))
	close(release)
	pool.Close(context.Background())
	// Output:
	// true
	// true
	// false
	// the second
}

// If a result takes too long, Cancel gives up the result and its computation.
func ExampleFuture_Cancel() {
	pool := workers.New(workers.Config{})
	answer := workers.Submit(context.Background(), pool, func(ctx context.Context) (string, error) {
		<-ctx.Done() // a slow backend that respects contexts
		return "", ctx.Err()
	})
	select {
	case <-answer.Done():
	case <-time.After(time.Millisecond):
		answer.Cancel()
	}
	_, err := answer.Wait(context.Background())
	fmt.Println(errors.Is(err, context.Canceled))
	pool.Close(context.Background())
	// Output: true
}

// Deposits to one account are booked one after the other, without a lock. Deposits to different
// accounts are booked concurrently.
func ExampleKeyed() {
	pool := workers.New(workers.Config{})
	accounts := workers.NewKeyed[string](pool, workers.KeyedConfig{Backlog: 100})
	balance := map[string]*int{"ann": new(int), "bob": new(int)}
	for i := range 20 {
		for name, b := range balance {
			if err := accounts.Go(context.Background(), name, func() { *b = *b*2%1000 + i }); err != nil {
				fmt.Println(err)
			}
		}
	}
	pool.Close(context.Background())
	fmt.Println(*balance["ann"], *balance["bob"], accounts.Stats().Keys)
	// Output: 555 555 0
}

// Events are acknowledged when they are queued, and written in batches of ten.
func ExampleQueue() {
	pool := workers.New(workers.Config{})
	events := workers.NewQueue(workers.QueueConfig[string]{
		Pool:  pool,
		Batch: 10,
		Age:   time.Hour, // or when the oldest is as old as this
		Handle: func(_ context.Context, batch []string) error {
			fmt.Println("write", len(batch), "from", batch[0])
			return nil
		},
	})
	for i := range 25 {
		if !events.TryPut(fmt.Sprint("event ", i)) {
			fmt.Println("too busy") // an HTTP handler would answer 503 here
		}
	}
	events.Close(context.Background()) // writes the last batch, even if it is not full
	pool.Close(context.Background())
	// Output:
	// write 10 from event 0
	// write 10 from event 10
	// write 5 from event 20
}

// A failed job is retried, and finally given up.
func ExampleQueue_retry() {
	pool := workers.New(workers.Config{})
	tries := 0
	mails := workers.NewQueue(workers.QueueConfig[string]{
		Pool:    pool,
		Retries: 2,
		Backoff: time.Millisecond,
		Handle: func(context.Context, []string) error {
			tries++
			return fmt.Errorf("try %d: connection refused", tries)
		},
		DeadLetter: func(jobs []string, err error) { fmt.Println(jobs, err) },
	})
	if err := mails.Put(context.Background(), "to ann"); err != nil {
		fmt.Println(err)
	}
	mails.Close(context.Background())
	pool.Close(context.Background())
	// Output: [to ann] try 3: connection refused
}
