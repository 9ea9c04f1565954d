package push

import "errors"

// A Window keeps what a receiver receives while its joining clients read the history: it joins the
// history and the publications that follow. The owner's lock guards it. The zero value is closed.
type Window struct {
	readers int
	list    []Publication
	missed  bool // the list overflowed, or the bus has lost publications
}

// windowLimit is how many publications may arrive while a history is read. Above it the
// subscription fails, and the client has to try again.
const windowLimit = 4096

var errWindow = errors.New("push: too much was published while the history was read: subscribe again")

// Open begins a read. It comes before the read of the history.
func (w *Window) Open() { w.readers++ }

// Close ends a read, and returns what was received since the first one that still runs began. It
// returns an error if something is missing.
func (w *Window) Close() (list []Publication, err error) {
	list = w.list
	if w.missed {
		err = errors.Join(ErrInternal, errWindow)
	}
	if w.readers--; w.readers == 0 {
		w.list, w.missed = nil, false
	}
	return list, err
}

// Keep adds what the receiver receives. Publications without a position are left out: a joining
// client need not get them, because its subscription begins after them.
func (w *Window) Keep(list []Publication) {
	if w.readers == 0 || w.missed {
		return
	}
	if len(w.list)+len(list) > windowLimit {
		w.Lose()
		return
	}
	for _, p := range list {
		if p.Epoch != "" {
			w.list = append(w.list, p)
		}
	}
}

// Lose notes that the bus has lost publications.
func (w *Window) Lose() { w.list, w.missed = nil, w.readers > 0 }
