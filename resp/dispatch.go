package resp

import (
	"strconv"
)

// Dispatch chooses where a handler runs. The zero value is DispatchAuto.
type Dispatch uint8

const (
	// DispatchAuto runs each command where it is cheapest: on a pool of goroutines until commands
	// of its name have been quick (100 µs) many times in a row, then on the connection's loop.
	// After it has overstayed, commands of that name run on the pool again. Handlers may block. On
	// a loop that is bound to its thread (myriad.Loop.ThreadBound) every command runs on the pool.
	DispatchAuto Dispatch = iota
	// DispatchPool hands every command to a bounded pool of warm goroutines.
	DispatchPool
	// DispatchInline runs the handler on the loop, on a view of the loop's buffer. It is for
	// handlers that never block: all other connections of the loop wait until it returns.
	DispatchInline
)

// String is the constant's name without its prefix.
func (d Dispatch) String() string {
	switch d {
	case DispatchAuto:
		return "auto"
	case DispatchPool:
		return "pool"
	case DispatchInline:
		return "inline"
	}
	return "Dispatch(" + strconv.Itoa(int(d)) + ")"
}
