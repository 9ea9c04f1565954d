package uring

import (
	"testing"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/bound"
	"github.com/myriad-go/myriad/internal/driver/drivertest"
	"github.com/myriad-go/myriad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// needsRing skips a test where the kernel refuses io_uring.
func needsRing(t *testing.T) {
	t.Helper()
	if err := Probe(); err != nil {
		t.Skip(err)
	}
}

func conformance(t *testing.T, sys driver.System) {
	needsRing(t)
	drivertest.Run(t, func(t drivertest.T) (driver.System, drivertest.Harness) {
		return sys, drivertest.NetHarness(t)
	})
}

func TestConformance(t *testing.T) { conformance(t, System{}) }

// Calls from more than one thread panic here.
func TestThreadBound(t *testing.T) { conformance(t, bound.System{System: System{}}) }

// Buffers run out, the submission queue is full after one connection, and the completion queue
// overflows all the time.
func TestSmallRing(t *testing.T) {
	conformance(t, sized{z: sizes{entries: entriesPerSlot, completions: 2 * entriesPerSlot, buffers: 2}})
}

// The kernel has nothing that Linux 6.1 does not have.
func TestOldKernel(t *testing.T) {
	conformance(t, sized{z: sizes{entries: ringEntries, completions: ringCompletions, buffers: bufferCount, old: true}})
}

// A sized system has rings of another size.
type sized struct {
	System
	z sizes
}

func (s sized) Open(loop uint8, o driver.Options) (driver.Driver, error) {
	d, err := newSized(loop, o, s.z)
	if err != nil {
		return nil, err
	}
	return d, nil
}
