//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package myriad

import (
	"fmt"
	"log/slog"
	"runtime"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/kqueue"
	"github.com/myriad-go/myriad/internal/driver/std"
)

// systemFor finds the driver that Config.Driver names. The better one is kqueue, but it is not
// chosen by itself before it has run on these systems.
func systemFor(name string, _ *slog.Logger) (driver.System, error) {
	switch name {
	case "kqueue":
		return kqueue.System{}, nil
	case "", "std":
		return std.System{}, nil
	}
	return nil, fmt.Errorf("myriad: driver %q: %w (on %s there are \"std\" and \"kqueue\")", name, ErrUnsupported,
		runtime.GOOS)
}
