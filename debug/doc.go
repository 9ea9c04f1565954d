// Package debug shows what an engine is doing, on a page and as a variable for expvar. Importing it
// registers nothing.
//
//	mux.Handle("/debug/myriad", debug.Handler(engine))
//	expvar.Publish("myriad", expvar.Func(debug.Var(engine)))
//
// The page is plain text for curl, or JSON for programs. It shows peers' addresses and the bytes
// queued for each, so serve it behind a key or on a separate address.
package debug

import "github.com/myriad-go/myriad"

// Var returns a function that returns e's current Stats and Limits, for expvar.Func. The function
// never waits for the loops. Any goroutine may call it.
func Var(e *myriad.Engine) func() any { return func() any { return newReport(e) } }

// A report is the content of the page. In JSON, durations are in nanoseconds.
type report struct {
	myriad.Stats
	Limits      myriad.Limits
	Figures     []myriad.Figures `json:",omitempty"`
	Connections *connections     `json:",omitempty"`
}

func newReport(e *myriad.Engine) *report {
	return &report{Stats: e.Stats(), Limits: e.Limits(), Figures: e.Figures()}
}
