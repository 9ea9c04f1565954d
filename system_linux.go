package myriad

import (
	"fmt"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/epoll"
	"github.com/myriad-go/myriad/internal/driver/std"
)

// systemFor finds the driver that Config.Driver names. Ordered by performance, best first.
func systemFor(name string) (driver.System, error) {
	switch name {
	case "", "epoll":
		return epoll.System{}, nil
	case "std":
		return std.System{}, nil
	}
	return nil, fmt.Errorf("myriad: driver %q: %w (on linux there are \"epoll\" and \"std\")", name, ErrUnsupported)
}
