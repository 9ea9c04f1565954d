// Package workers runs functions on a bounded number of warm goroutines, fed from a bounded queue.
//
// Use it where code may block and its number must be bounded: handlers, jobs, callbacks. A burst of
// quick tasks is done by a handful of goroutines, tasks that block get as many as they need up to
// the limit, and a pool that has nothing to do for a while has no goroutine at all. How many there
// are when is decided in one place, described at the top of grow.go.
//
// A [Pool] takes tasks in four ways, which differ in what happens when its queue is full: [Pool.Go]
// waits until a context ends, [Pool.GoTimeout] for a time, [Pool.TryGo] refuses at once,
// [Pool.TryGoAll] takes as many of a batch as there is room for and wakes once for all of them.
// What is accepted runs, exactly once; [Pool.Close] lets it. A panic is reported and counted, and
// costs no worker.
//
// On a pool stand, as many of each as one likes:
//
//   - [Submit], for a task with a result: a [Future] that can be waited for and cancelled, to which
//     a panic is an error.
//   - [Keyed], for tasks of which those of one key must keep their order, such as the events of a
//     user.
//   - [Queue], for "accept now, work later": jobs are acknowledged at once and done in batches,
//     tried again when they fail, and producers are held back when there are too many.
//
// None of them has a goroutine of its own.
package workers
