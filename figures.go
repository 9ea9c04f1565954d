package myriad

import (
	"cmp"
	"slices"
)

// Figures are what a package that serves connections of an engine counts, by name, for package
// debug.
type Figures struct {
	Title  string
	Counts []Count
}

// A Count is one line of Figures.
type Count struct {
	Name  string
	Count int64
}

// Figures returns the figures of all values of Shared that have a method Figures, in order of their
// titles. That method must not block, nor call Shared. Any goroutine.
func (e *Engine) Figures() []Figures {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []Figures
	for _, v := range e.shared {
		if f, ok := v.(interface{ Figures() Figures }); ok {
			all = append(all, f.Figures())
		}
	}
	slices.SortFunc(all, func(a, b Figures) int { return cmp.Compare(a.Title, b.Title) })
	return all
}
