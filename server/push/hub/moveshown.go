package hub

import (
	"fmt"
	"time"

	"github.com/myriad-go/myriad/server/push/internal/snapshot"
)

// This file moves what the console shows: the latest refusals and slow clients. Refusals keep their
// numbers, by which a page that is open asks for newer ones.

const (
	refusalPart = "hub.refusal.1" // one, the oldest first
	refusedPart = "hub.refused.1" // behind them: the number of the latest, and how many have no line since the last one
	slowPart    = "hub.slow.1"    // a client, the oldest first
)

func (r *refusals) writeState(w *snapshot.Writer) error {
	shown, last := r.since(0)
	var record []byte
	for i := range shown {
		one := &shown[len(shown)-1-i]
		record = snapshot.AppendInt(snapshot.AppendNumber(record[:0], one.Number), one.At.UnixNano())
		record = snapshot.AppendText(snapshot.AppendText(record, one.Reason), one.Remote)
		record = snapshot.AppendNumber(snapshot.AppendText(record, one.Details), uint64(one.Omitted))
		if err := w.Record(refusalPart, record); err != nil {
			return err
		}
	}
	r.mu.Lock()
	record = snapshot.AppendNumber(snapshot.AppendNumber(record[:0], last), uint64(r.omitted))
	r.mu.Unlock()
	return w.Record(refusedPart, record)
}

// maxOmitted bounds how many refusals a state says had no line in the log.
const maxOmitted = 1 << 40

// restoreRefusal adds a record of refusalPart. A server without a console keeps none.
func (r *refusals) restoreRefusal(f *snapshot.Fields) {
	one := ShownRefusal{Number: f.Number(), At: time.Unix(0, f.Int()), Reason: f.Text(), Remote: f.Text(),
		Details: f.Text(), Omitted: int(f.NumberUpTo(maxOmitted, "the number of omitted refusals"))}
	r.mu.Lock()
	defer r.mu.Unlock()
	if one.Number <= r.last {
		f.Fail("refusals are out of order")
	}
	if !r.console || f.Failed() {
		return
	}
	r.last = one.Number
	r.show(one)
}

// restoreLast reads a record of refusedPart.
func (r *refusals) restoreLast(f *snapshot.Fields) {
	last, omitted := f.Number(), f.NumberUpTo(maxOmitted, "the number of omitted refusals")
	r.mu.Lock()
	defer r.mu.Unlock()
	if last < r.last {
		f.Fail(fmt.Sprintf("the last refusal is number %d, and there is number %d", last, r.last))
		return
	}
	r.last, r.omitted = last, int(omitted)
}

// writeSlow writes both lists of slow clients.
func (f *figures) writeSlow(w *snapshot.Writer) error {
	var record []byte
	for _, log := range []*slowLog{&f.slowest, &f.droppers} {
		list := log.newestFirst()
		for i := range list {
			one := &list[len(list)-1-i]
			record = snapshot.AppendInt(snapshot.AppendBool(record[:0], log == &f.droppers), one.At.UnixNano())
			record = snapshot.AppendText(snapshot.AppendText(record, one.Client), one.User)
			record = snapshot.AppendNumber(snapshot.AppendText(record, one.Channel), uint64(max(0, one.Queued)))
			if err := w.Record(slowPart, record); err != nil {
				return err
			}
		}
	}
	return nil
}

// restoreSlow adds a record of slowPart.
func (f *figures) restoreSlow(r *snapshot.Fields) {
	log := &f.slowest
	if r.Bool() {
		log = &f.droppers
	}
	one := SlowClient{At: time.Unix(0, r.Int()), Client: r.Text(), User: r.Text(), Channel: r.Text(),
		Queued: int(r.NumberUpTo(1<<40, "what waits for a slow client"))}
	if !r.Failed() {
		log.add(one)
	}
}
