package epoll

import (
	"context"
	"net"
	"os"

	"github.com/myriad-go/myriad/internal/driver"
)

// System is Linux with epoll.
type System struct{ driver.Process }

// Name is what Config.Driver calls it.
func (System) Name() string { return "epoll" }

// Open, Listen, Import and Duplicate implement driver.System.
func (System) Open(loop uint8, o driver.Options) (driver.Driver, error) { return Open(loop, o) }

// Listen implements driver.System.
func (System) Listen(ctx context.Context, network, addr string) (driver.Listener, error) {
	return listen(ctx, network, addr)
}

// Import implements driver.System.
func (System) Import(nc net.Conn) (driver.Socket, error) {
	s, err := importConn(nc)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Duplicate implements driver.System.
func (System) Duplicate(f *os.File) (driver.File, error) {
	fd, err := duplicate(f)
	if err != nil {
		return nil, &os.PathError{Op: "duplicate", Path: f.Name(), Err: err}
	}
	return &File{fd: fd}, nil
}
