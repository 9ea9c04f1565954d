package driver

import (
	"bytes"
	"context"
	"runtime"
	"runtime/pprof"
)

// Unlabel takes the labels of runtime/pprof off the calling goroutine, which a user's code has set
// or the goroutine has inherited from the one that started it. It costs some nanoseconds and no
// allocation: the runtime does not tell whether there are labels.
func Unlabel() { pprof.SetGoroutineLabels(unlabelled) }

var unlabelled = context.Background()

// Goroutine returns the number of the calling goroutine, which no other one ever has. Code uses it
// to find out whether it is called by itself. The runtime tells the number only at the start of a
// stack: "goroutine 18 [running]:". It is 0 if it does not. That takes about a microsecond, and
// more for each caller on the stack, because the runtime walks through all of it.
func Goroutine() (id uint64) {
	var first [32]byte
	text, _ := bytes.CutPrefix(first[:runtime.Stack(first[:], false)], []byte("goroutine "))
	for _, digit := range text {
		if digit < '0' || digit > '9' {
			break
		}
		id = 10*id + uint64(digit-'0')
	}
	return id
}
