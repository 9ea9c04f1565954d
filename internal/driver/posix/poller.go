//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package posix

import (
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// A Poller is the kernel's list of the descriptors that one driver serves. Its calls are the
// driver's owner's, except Wake. A descriptor that is closed leaves it by itself, if it has no
// duplicate.
type Poller interface {
	// Add takes a descriptor in. Nothing of a former one with the same number is reported for id.
	Add(fd int, id driver.ID, i Interest) error
	// Modify and Remove are told what was said last. Modify may wait for Wait.
	Modify(fd int, id driver.ID, last, next Interest)
	Remove(fd int, last Interest)
	// Wait fills in what is ready, at most once for an id and each bit. A negative wait has no end.
	Wait(events []Event, wait time.Duration) (int, error)
	// Wake ends a Wait, or the next one. Any goroutine; not after Close.
	Wake()
	Close() error
}

// Interest is what a Poller is to report of a descriptor. Read and Write are level-triggered.
type Interest uint8

const (
	Read  Interest = 1 << iota // bytes, an end, a peer to accept
	Write                      // room, or that connecting has come to an end
	// Watch replaces Read: it reports only a reset, and does not repeat itself for bytes that are
	// not read.
	Watch
)

// Ready is what a Poller reports.
type Ready uint8

const (
	Readable Ready = 1 << iota
	Writable
	// Broken: the connection has an error, or both sides have ended. It is reported whatever the
	// interest, but a Poller need not report it without Watch or Read, nor ends at all.
	Broken
)

// An Event is the report of one descriptor.
type Event struct {
	ID    driver.ID
	Ready Ready
}
