//go:build !linux

package enginetest

import (
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/std"
)

// inBound is what is bound to threads.
func inBound() driver.System { return std.System{} }
