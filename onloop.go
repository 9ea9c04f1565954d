package myriad

import (
	"reflect"
	"runtime"
)

// loopBody is what every goroutine that is a loop has at the bottom of its stack, and guestHost what is below a guest, which may wait:
// another goroutine then goes on with the loop.
var (
	loopBody  = nameOf((*Loop).run)
	guestHost = nameOf((*Loop).visit)
)

func nameOf(f any) string { return runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name() }

// OnLoop reports whether the calling goroutine runs a callback of a loop, of any engine: whether it must not wait. It looks through the
// stack, which takes microseconds, so it is for those who are about to wait anyway. Any goroutine.
func OnLoop() bool {
	var pcs [32]uintptr
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		frames := runtime.CallersFrames(pcs[:n])
		for more := n > 0; more; {
			var f runtime.Frame
			switch f, more = frames.Next(); f.Function {
			case guestHost:
				return false
			case loopBody:
				return true
			}
		}
		if n < len(pcs) {
			return false
		}
	}
}
