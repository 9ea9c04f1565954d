package epoll

import (
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/posix"
)

// System is Linux with epoll.
type System struct{ posix.Sockets }

// Name is what Config.Driver calls it.
func (System) Name() string { return "epoll" }

// Open implements driver.System.
func (System) Open(loop uint8, o driver.Options) (driver.Driver, error) {
	p, err := newPoller(loop)
	if err != nil {
		return nil, err
	}
	return posix.New(loop, o, p), nil
}

// Facilities implements driver.System.
func (s System) Facilities() driver.Facilities {
	f := s.Sockets.Facilities()
	f.NewWatcher, f.Threads = s.NewWatcher, s
	return f
}

// NewWatcher makes a driver.Watcher.
func (System) NewWatcher() (driver.Watcher, error) {
	p, err := newPoller(0)
	if err != nil {
		return nil, err
	}
	return posix.NewWatcher(p), nil
}
