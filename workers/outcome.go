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
	Value any    // of the panic
	Stack []byte // of the goroutine, from debug.Stack
}

func (e *PanicError) Error() string { return fmt.Sprintf("workers: the task panicked: %v", e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// outcome runs f, and then calls end exactly once with f's outcome, on the same goroutine. After a
// panic of f it calls caught first.
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
