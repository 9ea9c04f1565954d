package driver

import "testing"

// Each goroutine has a number of its own, and keeps it.
func TestGoroutine(t *testing.T) {
	here := Goroutine()
	if here == 0 || Goroutine() != here {
		t.Errorf("got %d, then %d", here, Goroutine())
	}
	there := make(chan uint64)
	go func() { there <- Goroutine() }()
	if got := <-there; got == 0 || got == here {
		t.Errorf("another goroutine is %d, this one %d", got, here)
	}
}
