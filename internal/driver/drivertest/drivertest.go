// Package drivertest is the conformance suite of the driver contract. Every driver runs it:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, func(t drivertest.T) (driver.System, drivertest.Harness) {
//			return epoll.System{}, drivertest.NetHarness(t)
//		})
//	}
//
// Each case drives a driver from the test's goroutine through a [Checker], which holds every event
// and every call against the contract, whatever the case itself looks at.
package drivertest

import (
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// T is the part of testing.TB that the suite needs: the suite is itself tested, with something else
// in place of a test.
type T interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Failed() bool
	Cleanup(f func())
	TempDir() string
}

// A Harness is the other side of the driver's connections.
type Harness interface {
	// Dial connects a peer to addr. It may return before the connection is made, and before it
	// failed.
	Dial(addr net.Addr) Peer
	// Listen lets peers accept. The address is the one to dial.
	Listen(network, addr string) (Acceptor, error)
	// Exhaust makes accepting fail with EMFILE until restore is called. False: it cannot.
	Exhaust() (restore func(), ok bool)
}

// An Acceptor is where a driver can dial to.
type Acceptor interface {
	Addr() net.Addr
	Accepted() []Peer // all so far
	Close() error
}

// A Peer is one end of a connection. It never waits: it writes behind the caller's back, and reads
// by itself.
type Peer interface {
	Write(p []byte)
	CloseWrite() // FIN, after what was written
	Close()      // both directions, after what was written
	Reset()      // RST, at once
	StopReading()
	Resume()
	Received() []byte // all of it
	Count() int       // how many bytes that is
	Ended() bool      // the other side's FIN, after the last byte
	Err() error       // a reset, or a failed dial
	Open() bool       // the connection was made
	Unsent() int      // bytes of Write that the socket has not taken yet
	Local() driver.Addr
	Remote() driver.Addr
}

// Open makes a fresh system for one case.
type Open func(t T) (driver.System, Harness)

// ScaleEnv names the environment variable for the number of connections where many are made: 1,000
// without it. No more than 8,000 of them live at a time, and no more than the limit on descriptors
// allows, because both ends of each are in this process.
const ScaleEnv = "MYRIAD_DRIVERTEST_SCALE"

const (
	defaultScale = 1000
	mostLive     = 8000
)

func scale() int {
	if n, err := strconv.Atoi(os.Getenv(ScaleEnv)); err == nil && n > 0 {
		return n
	}
	return defaultScale
}

// A testCase is one function on a fresh system.
type testCase struct {
	name string
	run  func(b *bed)
}

var groups = [][]testCase{
	receiveCases, sendCases, closeCases, resetCases, acceptCases, dialCases, detachCases, moveCases, wakeCases,
	fileCases,
	loadCases,
	exitCases, walkCases, // the quick ones first: most mistakes are caught soon
}

// Run runs every case as a subtest.
func Run(t *testing.T, open Open) {
	for _, g := range groups {
		for _, c := range g {
			t.Run(c.name, func(t *testing.T) { runCase(t, open, c) })
		}
	}
}

// runCase runs one case and then looks for what it left behind.
func runCase(t T, open Open, c testCase) {
	before := buf.InUse()
	sys, h := open(t)
	b := &bed{T: t, sys: sys, h: h}
	finished := false
	defer func() {
		if v := recover(); v != nil {
			t.Fatalf("%s: panic: %v\n%s", c.name, v, debug.Stack())
		}
		if !finished && !t.Failed() { // it was skipped
			b.finish()
		}
	}()
	c.run(b)
	finished = true
	b.finish()
	if n := buf.InUse() - before; n != 0 && !t.Failed() {
		t.Errorf("%d blocks were not released", n)
	}
}

func errorf(t T, format string, args ...any) {
	t.Helper()
	t.Errorf("contract: %s", fmt.Sprintf(format, args...))
}
