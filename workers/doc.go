// Package workers runs functions on a bounded number of warm goroutines, fed from a bounded queue.
//
//	pool := workers.New(workers.Config{Workers: 100, Queue: 10_000})
//	if err := pool.Go(ctx, func() { resize(image) }); err != nil {
//		return err // ctx has ended before there was room
//	}
//	sum := workers.Submit(ctx, pool, func(ctx context.Context) (int, error) { return add(ctx, list) })
//	n, err := sum.Wait(ctx)
//	err = pool.Close(ctx) // accepted tasks still run
//
// Use it for code that may block, if the number of goroutines must be bounded: handlers, jobs,
// callbacks. A handful of goroutines does a burst of quick tasks. Tasks that block get as many
// goroutines as they need, up to the limit. An idle pool has no goroutine. grow.go describes the
// policy.
//
// A [Pool] has four methods that submit tasks. They differ in what happens when the queue is full:
//
//   - [Pool.Go] waits until a context ends;
//   - [Pool.GoTimeout] waits for a time;
//   - [Pool.TryGo] refuses at once;
//   - [Pool.TryGoAll] accepts as many tasks as there is room for, with one wake-up for all of them.
//
// Their contexts bound the wait for a place, and nothing else: an accepted task runs, also when
// that context has ended. The context of a future is another one, that of the whole job: see
// [Submit].
//
// An accepted task runs exactly once, also after [Pool.Close]. The pool reports and counts a panic,
// and its worker continues.
//
// Three forms of work run on a pool. A pool may have any number of each:
//
//   - [Submit] runs a task with a result, a [Future]. A program can wait for it and cancel it; a
//     panic becomes its error. [TrySubmit] refuses at once if there is no place, and
//     [SubmitTimeout] after a time.
//   - [Keyed] keeps the order of tasks with the same key, such as the events of one user.
//   - [Queue] accepts jobs now and does them later, in batches and with retries. At its limit it
//     makes producers wait.
//
// None of them has a goroutine of its own.
package workers
