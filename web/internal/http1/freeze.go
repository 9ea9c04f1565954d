package http1

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/internal/parts"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// This file is how HTTP/1 connections move to another process (docs/adr/0035): those that wait for
// a request, and those whose answer is a Stream that moves. All others stay, and end with the
// server.

// FrozenFormat is what Freeze writes, and Thaw reads.
const FrozenFormat = "http/1"

// frozenVersion is that of its parts.
const frozenVersion = 1

// The parts of a frozen connection. What is missing has its zero value.
const (
	partFresh   = "fresh"   // no byte has come yet
	partPosted  = "posted"  // the last request was a POST
	partBlank   = "blank"   // bytes of empty lines that have come
	partLast    = "last"    // the connection closes after the Stream
	partChunked = "chunked" // the Stream is in chunks
	partStream  = "stream"  // there is one; exchange.Stream has written it
)

var _ myriad.Freezer = (*Conn)(nil)

// Thawer implements myriad.Freezer.
func (h *Conn) Thawer() myriad.Thawer { return h.Lane.Server.Thawer }

// AtRest implements myriad.Freezer.
func (h *Conn) AtRest(*myriad.Conn) bool {
	switch {
	case h.X != nil || h.Ahead != nil || h.FIN || h.paused != 0 || h.Leaving() || h.Lane.Server.NoAlive.Load():
		return false
	case h.stream != nil:
		return answeredBy(h.stream) == nil && h.stream.AtRest()
	}
	return (h.phase == phaseNew || h.phase == phaseIdle) && !h.sending && !h.lately
}

// Freeze implements myriad.Freezer.
func (h *Conn) Freeze(_ *myriad.Conn, dst []byte) ([]byte, error) {
	e := parts.Begin(dst, frozenVersion)
	e.Bool(partFresh, h.phase == phaseNew)
	e.Bool(partPosted, h.posted)
	e.Uint(partBlank, uint64(h.blank))
	e.Bool(partLast, h.last)
	if h.stream != nil {
		state, err := h.stream.Freeze()
		if err != nil {
			return nil, err
		}
		_, chunked := h.stream.Sink().(*chunkedSink)
		e.Bool(partChunked, chunked)
		e.Bytes(partStream, state)
	}
	return e.End(), nil
}

// Moved implements myriad.Freezer.
func (h *Conn) Moved(*myriad.Conn) {
	if h.stream != nil {
		h.stream.Moved()
	}
	h.stream, h.phase = nil, phaseClosing
	h.SetState(http.StateHijacked) // as of any connection that another one has
	h.Lane.Remove(&h.Link)
}

// Thaw makes the connection k of what Freeze has written. stream is called for one whose answer is
// a Stream.
func (ln *Lane) Thaw(k exchange.Link, state []byte, stream func(*exchange.Stream, []byte) error) (
	myriad.Handler, error) {
	d, err := parts.Parse(state, frozenVersion)
	if err != nil {
		return nil, err
	}
	h := &Conn{Link: k, Own: ln, phase: phaseIdle}
	fresh, chunked := d.Bool(partFresh), d.Bool(partChunked)
	h.posted, h.last = d.Bool(partPosted), d.Bool(partLast)
	h.blank = uint8(d.Uint(partBlank, h1.MaxEmptyLines*uint64(len("\r\n"))))
	answer := d.Bytes(partStream, parts.MaxState)
	switch err = d.Err(); {
	case err != nil:
		return nil, err
	case fresh && answer != nil, chunked && answer == nil:
		return nil, fmt.Errorf("%w: fresh %v, chunked %v, with a Stream %v", parts.ErrValue, fresh, chunked,
			answer != nil)
	case h.Leaving():
		return nil, http.ErrServerClosed
	case fresh:
		h.phase = phaseNew
	case answer != nil:
		h.phase, h.Shared = phaseAnswer, true
		var sink exchange.Sink = (*plainSink)(k.C)
		if chunked {
			sink = (*chunkedSink)(k.C)
		}
		var value []byte
		if h.stream, value, err = exchange.ThawStream(sink, answer); err == nil {
			err = stream(h.stream, value)
		}
		if err != nil {
			return nil, err
		}
	}
	h.Lane.Add(h)
	h.SetState(http.StateNew)
	switch {
	case answer != nil:
		h.SetState(http.StateActive)
	case !fresh:
		h.SetState(http.StateIdle)
	}
	return h, nil
}

// notMoved reports whether a thawed connection goes on where it came from.
func notMoved(err error) bool { return errors.Is(err, myriad.ErrNotMoved) }
