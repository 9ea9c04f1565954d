package myriad

import (
	"fmt"
	"log/slog"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/epoll"
	"github.com/myriad-go/myriad/internal/driver/std"
	"github.com/myriad-go/myriad/internal/driver/uring"
)

// defaultDriver is the name of what Config.Driver means when it is empty. The linker sets it for
// tests of everything on another driver: "make uring-driver".
var defaultDriver = "epoll"

// systemFor finds the driver that Config.Driver names.
func systemFor(name string, log *slog.Logger) (driver.System, error) {
	if name == "" {
		name = defaultDriver
	}
	switch name {
	case "epoll":
		return epoll.System{}, nil
	case "uring":
		return ringOrPoller(uring.Probe(), log), nil
	case "std":
		return std.System{}, nil
	}
	return nil, fmt.Errorf("myriad: driver %q: %w (on linux there are \"epoll\", \"uring\" and \"std\")", name,
		ErrUnsupported)
}

// ringOrPoller is io_uring, or epoll where the kernel has refused a ring for that reason.
func ringOrPoller(refused error, log *slog.Logger) driver.System {
	if refused == nil {
		return uring.System{}
	}
	log.Warn("myriad: the driver \"uring\" cannot be used: \"epoll\" serves in its place", "err", refused)
	return epoll.System{}
}
