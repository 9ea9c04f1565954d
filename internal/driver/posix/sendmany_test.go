//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package posix

import (
	"runtime"
	"testing"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
	"golang.org/x/sys/unix"
)

// Helpers make writes for the owner, each of them once, and what the kernel does not take is left.
// No helper is started for a few writes.
func TestWritesAreShared(t *testing.T) {
	const crowd = 4 * leastShared
	var fds, peers [crowd]int
	for i := range crowd {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds[i], peers[i] = pair[0], pair[1]
		defer unix.Close(pair[0])
		defer unix.Close(pair[1])
		if err := unix.SetNonblock(pair[0], true); err != nil {
			t.Fatal(err)
		}
	}
	unix.Close(peers[0]) // a write to it fails
	s := &sharer{helpers: 3}
	defer s.stop()
	var g gather
	send := func(n, size int) {
		for i := range n {
			w := write{fd: fds[i], chain: new(buf.Chain)}
			w.chain.Append(make([]byte, size))
			s.writes = append(s.writes, w)
		}
		s.run(&g)
		for i := range s.writes {
			w := &s.writes[i]
			failed, left := w.errno != 0, w.chain.Len()
			if failed != (i == 0) || w.left != left || !failed && (left > 0) != (size > 1) {
				t.Fatalf("write %d of %d bytes: errno %d, %d bytes left, %d in the chain", i, size, w.errno,
					w.left, left)
			}
			w.chain.Release()
		}
		clear(s.writes)
		s.writes = s.writes[:0]
	}
	receive := func(n int) { // one byte each
		p := make([]byte, 10)
		for i := 1; i < n; i++ {
			if got, err := unix.Read(peers[i], p); got != 1 {
				t.Fatalf("peer %d has %d bytes: %v", i, got, err)
			}
		}
	}
	if send(leastShared-1, 1); s.wake != nil {
		t.Error("helpers were started for a few writes")
	}
	receive(leastShared - 1)
	for range 1000 {
		send(crowd, 1)
		receive(crowd)
	}
	if cap(s.wake) != 3 {
		t.Errorf("room for %d helpers, want 3", cap(s.wake))
	}
	send(crowd, 8<<20) // more than the kernel takes
}

// A driver that may have helpers has one for each other processor at most.
func TestHelpersOf(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	for allowed, want := range []int{0, 1, 1, 1} {
		if got := helpersOf(driver.Options{Helpers: allowed}); got != want {
			t.Errorf("on two processors: %d helpers of %d allowed, want %d", got, allowed, want)
		}
	}
	runtime.GOMAXPROCS(8)
	for allowed, want := range []int{0, 1, mostHelpers, mostHelpers} {
		if got := helpersOf(driver.Options{Helpers: allowed}); got != want {
			t.Errorf("%d helpers of %d allowed, want %d", got, allowed, want)
		}
	}
}
