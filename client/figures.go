package client

import (
	"sync/atomic"

	"github.com/myriad-go/myriad"
)

// figuresKey is the engine's key for the figures of its clients.
type figuresKey struct{}

// figures count the calls of an engine's transports by phase, those that are done excepted.
type figures struct{ calls [Done]atomic.Int64 }

func newFigures() any { return new(figures) }

func (f *figures) add(p Phase)    { f.calls[p].Add(1) }
func (f *figures) remove(p Phase) { f.calls[p].Add(-1) }

func (f *figures) move(from, to Phase) {
	f.remove(from)
	f.add(to)
}

// Figures is for package debug.
func (f *figures) Figures() myriad.Figures {
	all := myriad.Figures{Title: "client: requests by phase"}
	for p := range Done {
		all.Counts = append(all.Counts, myriad.Count{Name: p.String(), Count: f.calls[p].Load()})
	}
	return all
}
