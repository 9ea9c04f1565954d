package websocket

import (
	"slices"

	"github.com/myriad-go/myriad"
)

// keptRuns is how much room a batch keeps from one turn to the next.
const keptRuns = 1024

// A batch is the backlogs of one loop to which this turn has brought work. The pool is given all of them at the turn's end, which wakes it
// once. A worker that is woken for each message is quicker than the loop that brings the next one, and sleeps again. It is the loop's.
type batch struct {
	crew     *crew
	loop     *myriad.Loop
	turnEnds func() // submit, for the loop
	backlogs []*backlog
	runs     []func() // theirs
}

// gather is run for callers on the loop.
func (w *crew) gather(b *backlog) {
	l := b.c.nc.Loop()
	t := w.batchOf(l)
	if t == nil {
		t = w.addBatch(l)
	}
	if len(t.runs) == 0 {
		l.Later(t.turnEnds)
	}
	t.backlogs, t.runs = append(t.backlogs, b), append(t.runs, b.run)
}

func (w *crew) batchOf(l *myriad.Loop) *batch {
	if all := w.batches.Load(); all != nil {
		for _, t := range *all {
			if t.loop == l {
				return t
			}
		}
	}
	return nil
}

func (w *crew) addBatch(l *myriad.Loop) *batch {
	t := &batch{crew: w, loop: l}
	t.turnEnds = t.submit
	w.mu.Lock()
	defer w.mu.Unlock()
	all := []*batch{t}
	if others := w.batches.Load(); others != nil {
		all = append(slices.Clone(*others), t)
	}
	w.batches.Store(&all)
	return t
}

// submit brings the backlogs to the pool; those that it has no room for wait.
func (t *batch) submit() {
	taken := t.crew.executor(t.backlogs[0]).TryGoAll(t.runs)
	for _, b := range t.backlogs[taken:] {
		t.crew.run(b)
	}
	if cap(t.runs) > keptRuns {
		t.backlogs, t.runs = nil, nil
		return
	}
	clear(t.backlogs)
	clear(t.runs)
	t.backlogs, t.runs = t.backlogs[:0], t.runs[:0]
}
