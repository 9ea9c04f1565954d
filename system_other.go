//go:build !linux && !darwin && !freebsd && !netbsd && !openbsd && !dragonfly

package myriad

import (
	"fmt"
	"log/slog"
	"runtime"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/std"
)

// systemFor finds the driver that Config.Driver names: package net, where no better one exists.
func systemFor(name string, _ *slog.Logger) (driver.System, error) {
	switch name {
	case "", "std":
		return std.System{}, nil
	}
	return nil, fmt.Errorf("myriad: driver %q: %w (on %s there is \"std\")", name, ErrUnsupported, runtime.GOOS)
}
