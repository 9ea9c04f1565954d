//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/server/load"
)

// A watch looks after a run. It kills the family when the run's context ends, when a server has
// ended, or when memory runs out. It notes the moments of the run.
type watch struct {
	family   *family
	reserve  uint64
	progress io.Writer
	phase    atomic.Pointer[load.Phase]
	free     atomic.Uint64 // bytes of memory
	open     atomic.Int64  // connections
	shown    time.Time     // belongs to show
	least    int           // belongs to show: connections since connecting ended, the publisher's too

	// These belong to run's goroutine until it returns.
	before    moment // no connection is open
	connected moment // all are open
	held      moment // they have been held, and pinged
	after     moment // the last moment before the connections were closed
	seen      load.Phase
	recent    []moment // of the last seconds of connecting, the oldest first
}

// recently is for how long recent moments are kept: what used the processors then says why
// connections became no more.
const recently = 20 * time.Second

// remember keeps a moment of connecting.
func (w *watch) remember(m moment) {
	w.recent = append(w.recent, m)
	for len(w.recent) > 2 && m.At.Sub(w.recent[1].At) >= recently {
		w.recent = w.recent[1:]
	}
}

// busy is what used the processors at the end of connecting.
func (w *watch) busy() cpu {
	if len(w.recent) < 2 {
		return cpu{}
	}
	return between(w.recent[0], w.recent[len(w.recent)-1])
}

const lookEvery = 250 * time.Millisecond

// begin notes the moment before the load.
func (w *watch) begin() (err error) {
	w.before, err = w.family.look()
	return err
}

const showEvery = 2 * time.Second

// show notes how far the load has come, and prints it when a phase begins and every two seconds.
func (w *watch) show(p load.Progress) {
	fresh := w.phase.Load() == nil || *w.phase.Load() != p.Phase
	w.phase.Store(&p.Phase)
	w.open.Store(int64(p.Open))
	if p.Phase == load.Warming && fresh {
		w.least = p.Open
	}
	if p.Phase != load.Opening {
		w.least = min(w.least, p.Open)
	}
	if now := time.Now(); fresh || now.Sub(w.shown) >= showEvery {
		w.shown = now
		push := p.Total.Push
		fmt.Fprintf(w.progress, "%-20s %6.1fs  %d connections, %d pinged, %d deliveries, %d errors, %d MiB free\n",
			phaseNames[p.Phase], p.Since.Seconds(), p.Open, push.Pinged, push.Deliveries, failures(p.Total),
			w.free.Load()>>20)
	}
}

// phaseNames say what the phases of a load are here.
var phaseNames = map[load.Phase]string{load.Opening: "connecting", load.Warming: "holding",
	load.Running: "publishing", load.Draining: "waiting for the last", load.Closing: "closing"}

func failures(s *load.Sample) (n int64) {
	for _, count := range s.Failed {
		n += count
	}
	return n
}

// run looks until over is done, and returns why it has ended the run, or nil.
func (w *watch) run(ctx, over context.Context) error {
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	for {
		var err error
		select {
		case <-over.Done():
			return nil
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-ticks.C:
			err = w.look()
		}
		if err != nil {
			err = fmt.Errorf("%w; %s", err, w.reached())
			fmt.Fprintln(w.progress, "ending the run:", err)
			w.family.kill()
			return err
		}
	}
}

// reached says how far the run has come.
func (w *watch) reached() string {
	text := fmt.Sprintf("%d connections are open", w.open.Load())
	if used := w.busy(); w.seen == load.Opening && used.Took > 0 {
		shares, _ := used.shares()
		text += ", and " + shares
	}
	return text
}

func (w *watch) look() error {
	m, err := w.family.look()
	if err != nil {
		return err
	}
	if err := w.family.lost(); err != nil {
		return err
	}
	w.free.Store(m.Available)
	if m.Available < w.reserve {
		return fmt.Errorf("%d MiB of memory are available, less than the reserve: see --reserve", m.Available>>20)
	}
	phase := load.Opening
	if p := w.phase.Load(); p != nil {
		phase = *p
	}
	if phase == load.Opening {
		w.remember(m)
	}
	if phase != w.seen {
		switch phase {
		case load.Warming:
			w.connected = m
		case load.Running:
			w.held = m
		}
		w.seen = phase
	}
	if phase != load.Closing && m.Load.Processes >= w.after.Load.Processes {
		w.after = m
	}
	return nil
}
