// Package dispatch runs user code for the protocols: handlers, callbacks. It decides where each
// task runs, keeps the order of the tasks of one key, and learns which tasks are quick. A protocol
// gives it a task; what the task does, and what waits behind it, is the protocol's.
//
// # Words
//
// A [Task] is one call of user code, such as a handler. It embeds a [State] and is a pointer to an
// object that the protocol has anyway. A key is what orders tasks: a connection, a stream. A key
// has no object here: it is the chain of tasks that [Task.Next] links. A [Dispatcher] belongs to
// one server or one set of options, a [Local] is its state on one loop. A [Record] is what is known
// of one kind of tasks, such as a route.
//
// # Where a task runs
//
//   - Inline: as a myriad.InlineTask on the goroutine of the connection's loop, at the end of the
//     poll cycle. If it blocks or overstays, the loop is handed off (docs/adr/0010): the task goes
//     on, and its goroutine ends with it.
//   - On the pool: with the other tasks of the same poll cycle, which are given to the pool at
//     once, so that it is woken once.
//
// The loop decides for each task ([Local.TryInline]). In mode [Pool] nothing runs inline, in mode
// [Inline] everything. In mode [Auto] a task runs inline if its Record is known to be quick and the
// loop does not rest. After a task has overstayed, the loop rests: everything runs on the pool for
// 10 ms. On a loop that is bound to its thread, and so cannot be handed off, Auto runs every task
// on the pool. In both modes a task runs on the pool while its connection has more than
// Config.MaxQueued bytes queued, or while Config.MaxAway tasks are away.
//
// # Order
//
// The tasks of a key run one at a time, in the order in which they came:
//
//   - The protocol dispatches a task, by TryInline or ToPool, only if its key is idle. Both are
//     called on the loop. The key is busy until the dispatcher has called Next or Kept.
//   - After [Task.Do] the dispatcher calls exactly one of Next and Kept, on the goroutine on which
//     the protocol's next step belongs, and touches the task no more. Everything before a Do has
//     happened before everything after the next Do of the same key.
//   - Next is called off the loop. It returns the task that follows, which then runs on the pool,
//     or nil: the key is idle.
//   - Kept is called on the loop, as a callback of the connection, after an inline task that did
//     not lose its loop. It may dispatch the task that follows.
//
// To decide that a key is idle, and to make it busy, is done under one lock of the protocol. Then
// no task is lost and none runs twice.
//
// # Panics and runtime.Goexit
//
// A Do should recover the panics of user code. If a panic escapes on the pool, or user code ends
// its goroutine, Next is still called, and what it returns runs on another goroutine. On a loop the
// engine deals with both (myriad.InlineTask).
//
// # Bounds
//
//   - The pool: Config.Workers run and Config.Queue wait. A task that the pool has no room for is
//     given to Config.NoRoom, on the loop. Without NoRoom it waits in the Dispatcher, and one
//     goroutine brings what waits to the pool as it gets room. A task that Next has returned always
//     waits: its key was accepted. So at most one task of each key waits, and the protocol bounds
//     the keys.
//   - Away: tasks on goroutines that were a loop's. At Config.MaxAway no task starts inline. Tasks
//     that run inline at that moment may still exceed it, one for each loop.
//   - What waits behind a task is the protocol's to bound.
//
// # Time and goroutines
//
// Time comes from the loop's engine, and so does the pool if the engine has an executor (the
// simulator). The package has no clock, no chance and no goroutine of its own.
//
// # The owner of the pool
//
// A Dispatcher makes its pool when the first task needs it, and Close ends it. A pool of
// Config.Pool stays its owner's to close. If that is closed early, tasks without NoRoom run one
// after the other on a goroutine of the engine: none is lost.
package dispatch
