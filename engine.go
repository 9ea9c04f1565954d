package myriad

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// An Engine runs event loops. Its methods may be called from any goroutine.
type Engine struct {
	cfg   Config
	sys   driver.System
	has   driver.Facilities // of sys
	loops []*Loop
	start time.Time

	turn       atomic.Uint32 // which gets the next connection
	listenTurn atomic.Uint32
	running    atomic.Int32 // loops and bridges that have not ended

	quota    quota
	pace     pace
	anteroom anteroom
	locals   sharedAddrs
	spare    spare
	monitor  monitor
	lighten  func() // gives the ballast back; nil: there is none
	hits     limitHits

	full, fast, failing notice // what is logged of MaxConns, AcceptRate and failing accepts

	mu      sync.Mutex
	waiters []driver.Parker // of Shutdown
	bridges map[*bridge]struct{}
	watcher driver.Watcher // of bridges; nil while there are none
	shared  map[any]any

	lookups lookups // of DialFunc
}

// System is the world the engine lives in, for the packages of this module: where they wait and
// run, they do it by its means, so that a simulation can order them.
func (e *Engine) System() driver.System { return e.sys }

// Logger is Config.Logger, or what stands in for it. Any goroutine.
func (e *Engine) Logger() *slog.Logger { return e.cfg.Logger }

// Shared returns the one value of key in this engine. The first call makes it by create. Packages
// above use it instead of global variables. key is of a type of that package. create must not call
// Shared. Any goroutine.
func (e *Engine) Shared(key any, create func() any) any {
	e.mu.Lock()
	defer e.mu.Unlock()
	v, ok := e.shared[key]
	if !ok {
		if e.shared == nil {
			e.shared = map[any]any{}
		}
		v = create()
		e.shared[key] = v
	}
	return v
}

// Loops are the engine's loops, by their Index; they are the same until its end. Any goroutine.
func (e *Engine) Loops() []*Loop { return append([]*Loop(nil), e.loops...) }
