// Package debug shows what an engine is doing, on a page and as a variable for expvar. Nothing is
// registered by importing it.
//
//	mux.Handle("/debug/myriad", debug.Handler(engine))
//	expvar.Publish("myriad", expvar.Func(debug.Var(engine)))
//
// The page is plain text for curl, or JSON for programs. It tells peers' addresses and how much
// waits for each, so it belongs behind a key or on an address of its own.
package debug

import "github.com/myriad-go/myriad"

// Var returns a function whose value is e's Stats and Limits of the moment, for expvar.Func. It
// does not need the loops' help and never waits. Any goroutine.
func Var(e *myriad.Engine) func() any { return func() any { return newReport(e) } }

// A report is what the page shows. Durations are in nanoseconds in JSON.
type report struct {
	myriad.Stats
	Limits      myriad.Limits
	Connections *connections `json:",omitempty"`
}

func newReport(e *myriad.Engine) *report { return &report{Stats: e.Stats(), Limits: e.Limits()} }
