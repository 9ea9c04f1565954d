package web

import (
	"net/http"
	"sync/atomic"

	"github.com/myriad-go/myriad"
)

// This file is where a handler runs, and how its answer ends.

// runs says where the handler of an exchange runs.
type runs uint8

const (
	runsNot      runs = iota // nowhere: it is refused, or waits in a chain
	runsOnPool               // or it has run there, or is going to
	runsInline               // as an inline task, at once
	kept                     // it has run inline and the loop goes on: only the loop touches the exchange now
	keptReleased             // like kept, and one of loop and handler is done with it
)

// inline reports whether the handler runs, or has run, as an inline task.
func (x *exchange) inline() bool { return x.runs >= runsInline }

// An ending is how an answer ends for its handler.
type ending uint32

const (
	open      ending = iota
	finishing        // the handler has returned: what it has not sent is being sent, unless that fails
	answered         // the handler has returned, and its answer has been sent
	detached         // a Stream continues the answer
	upgraded         // another handler speaks on the connection
	hijacked         // the connection leaves the engine
)

func (x *exchange) ending() ending { return ending(x.end.Load()) }

func (x *exchange) setEnding(e ending) { x.end.Store(uint32(e)) }

// complete reports whether the loop may go on behind the answer.
func (e ending) complete() bool { return e == answered || e == detached }

// over reports whether the handler has nothing more to write.
func (e ending) over() bool { return finishing <= e && e <= detached }

// taken reports whether the connection leaves HTTP.
func (e ending) taken() bool { return e >= upgraded }

// outlived is the end of a handler that its connection has not outlived.
func (x *exchange) outlived() {
	defer x.lane.st.connGone()
	x.out.lastState().release()
}

// A lastState is the call of ConnState with StateClosed, which waits until no handler of the
// connection runs, as in net/http.
type lastState struct {
	k    *link
	left atomic.Int32 // holders: those handlers, and the loop
}

func newLastState(k *link) *lastState {
	e := &lastState{k: k}
	e.left.Store(1)
	return e
}

// release is called by the loop, and by each handler when it ends. A nil lastState does nothing.
func (e *lastState) release() {
	if e != nil && e.left.Add(-1) == 0 {
		e.k.lane.s.reportOf(e.k.seen(), http.StateClosed)
	}
}

// lose ends whatever the handler may be waiting for, because its connection or stream has gone.
// drop discards what waits to be sent.
func (x *exchange) lose(err error, end *lastState, drop func()) {
	if err == nil {
		err = myriad.ErrClosed
	}
	x.gone.Store(true)
	x.out.lose(err) // first: a goroutine woken by its body may write
	if x.body != nil {
		x.body.fail(x.netError("read", err))
	}
	drop()
	if end != nil {
		x.out.setLastState(end)
		end.left.Add(1)
	}
	if x.given.ctx.loseConn(x.runs != runsNot) {
		x.lane.st.conns.Add(1) // until the handler has ended
	} else {
		end.release()
	}
	x.takeoverLost(x.conn(), err)
	if s := x.stream(); s != nil {
		s.lost(err)
	}
}
