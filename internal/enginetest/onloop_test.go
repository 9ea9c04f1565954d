package enginetest

import (
	"testing"

	"github.com/myriad-go/myriad"
)

// deep asks from below many frames, more than are looked at in one go.
func deep(n int) bool {
	if n == 0 {
		return myriad.OnLoop()
	}
	return deep(n-1) || n < 0
}

func TestOnLoop(t *testing.T) {
	e, err := myriad.Start(myriad.Config{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Shutdown(t.Context()) }()
	said := make(chan bool, 2)
	if err := e.Loops()[0].Do(func() { said <- myriad.OnLoop(); said <- deep(100) }); err != nil {
		t.Fatal(err)
	}
	for range cap(said) {
		if !<-said {
			t.Error("a function of the loop is said not to be on it")
		}
	}
	if myriad.OnLoop() || deep(100) {
		t.Error("a test is said to be on a loop")
	}
}

func BenchmarkOnLoop(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if myriad.OnLoop() {
			b.Fatal("a test is no loop")
		}
	}
}
