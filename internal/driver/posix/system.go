//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package posix

import (
	"context"
	"net"
	"os"

	"github.com/myriad-go/myriad/internal/driver"
)

// Sockets is a driver.System but for its name and Open.
type Sockets struct{ driver.Process }

// Facilities implements driver.System.
func (s Sockets) Facilities() driver.Facilities {
	f := s.Process.Facilities()
	f.Pair, f.Moves = s.Pair, &moves
	return f
}

// Listen implements driver.System.
func (Sockets) Listen(ctx context.Context, network, addr string) (driver.Listener, error) {
	return listen(ctx, network, addr)
}

// Import implements driver.System.
func (Sockets) Import(nc net.Conn) (driver.Socket, error) {
	s, err := importConn(nc)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Duplicate implements driver.System.
func (Sockets) Duplicate(f *os.File) (driver.File, error) {
	fd, err := duplicate(f)
	if err != nil {
		return nil, &os.PathError{Op: "duplicate", Path: f.Name(), Err: err}
	}
	return &File{fd: fd}, nil
}
