package uring

import (
	"errors"
	"runtime"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/epoll"
)

// System is Linux with io_uring. All but its drivers is that of epoll: sockets may go from drivers
// of the one to those of the other.
type System struct{ epoll.System }

// Name is what Config.Driver calls it.
func (System) Name() string { return "uring" }

// Open implements driver.System.
func (System) Open(loop uint8, o driver.Options) (driver.Driver, error) {
	d, err := newDriver(loop, o)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Probe reports why this process cannot use io_uring; nil if it can.
func Probe() error {
	d, err := newSized(0, driver.Options{ReadBuffer: bufferSize}, sizes{entriesPerSlot, 2 * entriesPerSlot, 1, false})
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return errors.Join(d.await(0), d.Shutdown())
}
