package main

import (
	"context"
	"time"
)

// A patience waits for strangers to leave the machine alone, and has spoilt turns repeated, for as
// long as there is any left. Then turns are taken as they come: with a warning.
type patience struct {
	left time.Duration
	// others is what strangers use at the moment, in cores, watched for d.
	others func(ctx context.Context, d time.Duration) (float64, error)
}

func newPatience(d time.Duration) *patience { return &patience{d, watchOthers} }

func watchOthers(ctx context.Context, d time.Duration) (float64, error) {
	w, err := newWatch()
	if err == nil {
		err = sleep(ctx, d)
	}
	if err != nil {
		return 0, err
	}
	return w.strangers()
}

// glance is how long quiet measures the use of the machine.
const glance = 500 * time.Millisecond

// quiet waits until no other process uses the machine.
func (p *patience) quiet(ctx context.Context) error {
	for p.left > 0 {
		used, err := p.others(ctx, glance)
		if err != nil || used <= spoiled {
			return err
		}
		p.left -= glance
	}
	return ctx.Err()
}

// take has a turn when it is quiet, and again if it did not stay so.
func (p *patience) take(ctx context.Context, turn func(context.Context) (sample, error)) (sample, error) {
	for {
		if err := p.quiet(ctx); err != nil {
			return nil, err
		}
		began := time.Now()
		s, err := turn(ctx)
		if err != nil || s["strangers"] <= spoiled || p.left <= 0 {
			return s, err
		}
		p.left -= time.Since(began)
	}
}
