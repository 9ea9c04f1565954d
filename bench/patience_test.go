//go:build linux

package main

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Turns are repeated until one is undisturbed, but not for ever.
func TestPatience(t *testing.T) {
	for _, tt := range []struct {
		name          string
		left          time.Duration
		others        []float64 // at each glance; then nothing
		turns         []float64 // strangers in each turn
		glances, took int
	}{
		{"quiet", time.Hour, nil, []float64{0}, 1, 1},
		{"busy at first", time.Hour, []float64{1, 1}, []float64{0}, 3, 1},
		{"spoilt", time.Hour, nil, []float64{1, 0.5, 0.1}, 3, 3},
		{"no patience", 0, []float64{1}, []float64{1, 0}, 0, 1},
		{"patience ends", 2 * glance, []float64{1, 1, 1, 1}, []float64{1, 0}, 2, 1},
	} {
		glances, took := 0, 0
		p := &patience{tt.left, func(context.Context, time.Duration) (float64, error) {
			glances++
			if glances <= len(tt.others) {
				return tt.others[glances-1], nil
			}
			return 0, nil
		}}
		s, err := p.take(t.Context(), func(context.Context) (sample, error) {
			took++
			return sample{"strangers": tt.turns[took-1]}, nil
		})
		if err != nil || glances != tt.glances || took != tt.took || s["strangers"] != tt.turns[tt.took-1] {
			t.Errorf("%s: %d glances, %d turns, %v, %v", tt.name, glances, took, s, err)
		}
	}
	broken := errors.New("broken")
	if _, err := newPatience(0).take(t.Context(), func(context.Context) (sample,
		error) {
		return nil, broken
	}); err != broken {
		t.Errorf("the turn's error became %v", err)
	}
	if used, err := watchOthers(t.Context(), 50*time.Millisecond); err != nil || used < 0 {
		t.Errorf("others use %v of the machine, %v", used, err)
	}
}
