//go:build linux

package main

import (
	"errors"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/soak"
)

// wrk finds the same cost of a server as our driver, which costs about as much as wrk itself: both
// are mostly the kernel's. The tolerance is wide, and one of five tries must be within it, because
// the two run one after the other and the machine may change in between. The command of the same
// name takes longer and is more exact.
func TestWitness(t *testing.T) {
	soak.Only(t) // wrk does not run for less than a second
	for tries := 1; ; tries++ {
		ours, theirs, err := compare(t.Context(), "c-epoll", 50, time.Second)
		if errors.Is(err, errNoWitness) {
			t.Skip(err)
		}
		if err != nil {
			t.Skipf("c-epoll: %v", err) // without a C compiler
		}
		t.Logf("ours %+v, wrk %+v", ours, theirs)
		dear := ours.driver > 2*theirs.driver
		differ := ours.server > 2*theirs.server || theirs.server > 2*ours.server
		switch {
		case !dear && !differ:
			return
		case tries < 5:
		case dear:
			t.Fatalf("our driver costs %.2f µs per request, wrk %.2f", ours.driver, theirs.driver)
		default:
			t.Fatalf("our driver finds %.2f µs of server CPU per request, wrk %.2f", ours.server, theirs.server)
		}
	}
}

func TestMedianOf(t *testing.T) {
	got := medianOf([]testimony{{10, 3, 30, 7, 5, 60}, {20, 1, 10, 9, 4, 80}, {30, 2, 50, 8, 6, 70}})
	if want := (testimony{60, 2, 30, 8, 5, 70}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestReadWrk(t *testing.T) {
	got, err := readWrk(`Running 1s test @ http://127.0.0.1:1/plaintext
  Latency Distribution
     50%    1.23ms
     75%    1.50ms
     90%    2.00ms
     99%  250.00us
  12345 requests in 1.10s, 1.46MB read
Requests/sec:  11222.73
`)
	if want := (testimony{requests: 12345, rate: 11222.73, p50: 1230, p99: 250}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if _, err := readWrk("12345 requests in 1.10s"); err == nil {
		t.Error("times are missing: no error")
	}
}
