package leaktest

import (
	"fmt"
	"runtime/pprof"
	"strings"
)

// CountLabelled returns a function that counts the goroutines which carry a label of runtime/pprof
// with that name. Call it before a label is set, and stop when the counting is over. A goroutine of
// its own counts, because a profile lacks the labels of the goroutine that takes it.
func CountLabelled(name string) (count func() int, stop func()) {
	asked, counted := make(chan struct{}), make(chan int)
	go func() {
		for range asked {
			counted <- labelled(name)
		}
	}()
	return func() int { asked <- struct{}{}; return <-counted }, func() { close(asked) }
}

func labelled(name string) (n int) {
	var profile strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1)
	_, groups, _ := strings.Cut(profile.String(), "\n") // behind the line with the total
	for group := range strings.SplitSeq(groups, "\n\n") {
		if strings.Contains(group, "\n# labels: {") && strings.Contains(group, fmt.Sprintf("%q:", name)) {
			var alike int
			_, _ = fmt.Sscanf(group, "%d @", &alike)
			n += alike
		}
	}
	return n
}
