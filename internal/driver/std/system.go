package std

import (
	"context"
	"net"
	"os"

	"github.com/myriad-go/myriad/internal/driver"
)

// System is whatever package net runs on.
type System struct {
	driver.Process
	// QueueOnly has Send leave everything to goroutines, as it must on systems that cannot tell
	// what would not block. It is for tests.
	QueueOnly bool
}

// Name is what Config.Driver calls it.
func (System) Name() string { return "std" }

// Facilities implements driver.System.
func (s System) Facilities() driver.Facilities {
	f := s.Process.Facilities()
	f.Moves = moves
	return f
}

// Open implements driver.System.
func (s System) Open(loop uint8, o driver.Options) (driver.Driver, error) {
	d := Open(loop, o)
	d.queueOnly = s.QueueOnly
	return d, nil
}

// Listen implements driver.System.
func (System) Listen(ctx context.Context, network, addr string) (driver.Listener, error) {
	l, err := listen(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Import implements driver.System: it takes every conn. One of package net cannot be used by its
// old owner any more afterwards on unix systems; elsewhere and for other types it only must not be.
func (System) Import(nc net.Conn) (driver.Socket, error) {
	s, err := importConn(nc)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Duplicate implements driver.System.
func (System) Duplicate(f *os.File) (driver.File, error) {
	file, err := duplicate(f)
	if err != nil {
		return nil, err
	}
	return file, nil
}
