package hub

import (
	"errors"

	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/bus"
)

// This file joins a history and what is received while it is read. A client that joins gets each
// publication after its own position once. The first come from the history, the next from the
// window that the channel received meanwhile, the rest from the channel.

// A JoinPoint joins a history and the window that was received while it was read.
type JoinPoint struct {
	past bus.History
	Rest []bus.Publication // the part of the window after past
	at   bus.Position      // the end of both
}

// NewJoinPoint joins a history with window, the publications that were received while it was read,
// in their order.
func NewJoinPoint(past bus.History, window []bus.Publication) JoinPoint {
	from := JoinPoint{past: past, at: past.Top}
	for i, p := range window {
		if p.Epoch == past.Top.Epoch && p.Offset > past.Top.Offset {
			from.Rest = window[i:]
			from.at = from.Rest[len(from.Rest)-1].Position
			break
		}
	}
	return from
}

// welcome returns what a client with that request has missed. It sets Recovered if that is
// complete.
func (from *JoinPoint) welcome(w SubscribeCommand, limits Limits) Welcome {
	hello := Welcome{Recoverable: true, At: from.at, WasRecovering: w.Recover}
	if !w.Recover || w.Since.Epoch != "" && w.Since.Epoch != from.at.Epoch || !from.past.Complete {
		return hello
	}
	count, bytes := len(from.past.Publications)+len(from.Rest), 0
	for _, list := range [][]bus.Publication{from.past.Publications, from.Rest} {
		for _, p := range list {
			bytes += envelope + p.Size()
		}
	}
	if count > limits.Recovered || bytes > limits.Queue {
		return hello
	}
	hello.Recovered = true
	hello.Publications = append(from.past.Publications, from.Rest...)
	return hello
}

// A Window keeps what a receiver receives while its joining clients read the history: it joins the
// history and the publications that follow. The owner's lock guards it. The zero value is closed.
type Window struct {
	readers int
	list    []bus.Publication
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
func (w *Window) Close() (list []bus.Publication, err error) {
	list = w.list
	if w.missed {
		err = errors.Join(answer.ErrInternal, errWindow)
	}
	if w.readers--; w.readers == 0 {
		w.list, w.missed = nil, false
	}
	return list, err
}

// Keep adds what the receiver receives. Publications without a position are left out: a joining
// client need not get them, because its subscription begins after them.
func (w *Window) Keep(list []bus.Publication) {
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
