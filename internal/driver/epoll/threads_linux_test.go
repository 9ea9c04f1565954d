package epoll

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A thread that computes is told from one that waits in a system call.
func TestThreads(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var s System
	own := s.Thread()
	if own != unix.Gettid() {
		t.Fatalf("thread %d, want %d", own, unix.Gettid())
	}
	if !s.Ready(own) {
		t.Error("the thread that asks is not ready")
	}
	before := s.Ran(own)
	if before < 0 {
		t.Fatal("no clock of a thread")
	}
	for s.Ran(own) < before+time.Millisecond {
	}
	waiter := waits(t)
	// it is on its way into the call, and may sleep for other reasons before
	for end := time.Now().Add(20 * time.Second); ; {
		a := s.Ran(waiter)
		time.Sleep(time.Millisecond)
		b, ready := s.Ran(waiter), s.Ready(waiter)
		if a >= 0 && a == b && !ready {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a thread that waits has run for %v, and then for %v, ready: %v", a, b, ready)
		}
	}
	if none := 1 << 22; s.Ran(none) != -1 || s.Ready(none) { // PID_MAX_LIMIT: no thread has this number
		t.Errorf("a thread that is none has run for %v, ready: %v", s.Ran(none), s.Ready(none))
	}
}

// waits returns a thread that reads from a pipe into which nothing is written before the test ends.
func waits(t *testing.T) (thread int) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	number, done := make(chan int), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		number <- System{}.Thread()
		unix.Read(pipe[0], make([]byte, 1))
	}()
	t.Cleanup(func() {
		unix.Close(pipe[1])
		<-done
		unix.Close(pipe[0])
	})
	return <-number
}
