package workers

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrExited is the outcome of a function that ended its goroutine with runtime.Goexit instead of
// returning.
var ErrExited = errors.New("workers: the task ended its goroutine with runtime.Goexit")

// A PanicError is the outcome of a function that panicked.
type PanicError struct {
	Value any    // that it panicked with
	Stack []byte // of its goroutine, as debug.Stack has it
}

func (e *PanicError) Error() string { return fmt.Sprintf("workers: the task panicked: %v", e.Value) }

// Unwrap is the value if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// outcome runs f and calls end exactly once with what came of it, however f ends, on the same
// goroutine. caught is told first of a panic.
func outcome(f func() error, caught func(), end func(err error)) {
	err := ErrExited
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
			caught()
		}
		end(err)
	}()
	err = f()
}
