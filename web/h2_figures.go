package web

import (
	"sync/atomic"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/mux"
)

// figuresKey is the engine's key for the figures of its servers.
type figuresKey struct{}

// figures count for all HTTP/2 connections of an engine's servers.
type figures struct {
	mux.Counters
	late atomic.Int64 // streams reset because their answer was late
}

func newFigures() any { return new(figures) }

// Figures is for package debug.
func (f *figures) Figures() myriad.Figures {
	return myriad.Figures{Title: "web: HTTP/2", Counts: []myriad.Count{
		{Name: "streams", Count: f.Opened.Load()},
		{Name: "streams refused", Count: f.Refused.Load()},
		{Name: "streams reset by clients", Count: f.PeerResets.Load()},
		{Name: "streams reset for mistakes", Count: f.Resets.Load()},
		{Name: "connections ended for mistakes", Count: f.ConnErrors.Load()},
		{Name: "connections ended for floods", Count: f.Calmed.Load()},
		{Name: "heads too large", Count: f.TooLarge.Load()},
		{Name: "streams reset for late answers", Count: f.late.Load()},
		{Name: "pauses for clients that do not read", Count: f.Paused.Load()},
		{Name: "connections ended for clients that do not read", Count: f.Stalled.Load()},
	}}
}
