package exchange

import (
	"errors"
	"fmt"
	"math"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/parts"
)

// This file is how a Stream goes on in another process.

// streamVersion is that of the parts of a frozen Stream.
const streamVersion = 1

const (
	partValue  = "value"  // what the program keeps for it
	partNoBody = "noBody" // the answer to HEAD, and others without a body
	partBeat   = "beat"   // of the keep-alive, in milliseconds
	partArmed  = "armed"  // that for which the timer is set
	partWrote  = "wrote"  // something was written since the last keep-alive
)

// errStreamMoved is what a Stream's context ends with where it does not go on.
var errStreamMoved = errors.New("web: the stream goes on in another process")

// The moves of a Stream are the program's part in it.
type moves struct {
	freeze func(dst []byte) ([]byte, error)
	moved  func()
}

// OnFreeze arranges what a Stream moves with: see web.Stream.
func (s *Stream) OnFreeze(freeze func(dst []byte) ([]byte, error), moved func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moves = nil; freeze != nil {
		s.moves = &moves{freeze, moved}
	}
}

// AtRest reports whether s can be frozen. On the loop.
func (s *Stream) AtRest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rests()
}

// rests reports whether s goes on, and has what it moves with. s.mu is held.
func (s *Stream) rests() bool {
	return s.moves != nil && !s.over && !s.told && !s.owed && !s.cut
}

// Sink is how s is sent.
func (s *Stream) Sink() Sink { return s.sink }

// Freeze writes s down. It fails with myriad.ErrBusy if another goroutine, or the program's own
// function, has ended s since AtRest. On the loop.
func (s *Stream) Freeze() ([]byte, error) {
	s.mu.Lock()
	m := s.moves
	s.mu.Unlock()
	if m == nil {
		return nil, fmt.Errorf("web: Stream.OnFreeze was withdrawn: %w", myriad.ErrBusy)
	}
	value, err := m.freeze(nil) // which may write
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.rests():
		return nil, fmt.Errorf("web: the Stream ends: %w", myriad.ErrBusy)
	case err != nil:
		return nil, err
	}
	e := parts.Begin(nil, streamVersion)
	e.Bytes(partValue, value)
	e.Bool(partNoBody, s.noBody)
	e.Uint(partBeat, uint64(s.beat))
	e.Uint(partArmed, uint64(s.armed))
	e.Bool(partWrote, s.wrote)
	return e.End(), nil
}

// Moved is the end of s where it does not go on. On the loop.
func (s *Stream) Moved() {
	s.mu.Lock()
	m := s.moves
	s.over, s.told, s.ending, s.onDrained, s.moves = true, true, errStreamMoved, nil, nil
	s.life.End(errStreamMoved)
	s.mu.Unlock()
	if m != nil && m.moved != nil {
		m.moved()
	}
}

// ThawStream makes the Stream again, and returns what the program has kept for it.
func ThawStream(sink Sink, state []byte) (s *Stream, value []byte, err error) {
	d, err := parts.Parse(state, streamVersion)
	if err != nil {
		return nil, nil, err
	}
	s = &Stream{sink: sink, noBody: d.Bool(partNoBody), wrote: d.Bool(partWrote),
		beat: uint32(d.Uint(partBeat, math.MaxUint32)), armed: uint32(d.Uint(partArmed, math.MaxUint32))}
	value = d.Need(partValue, parts.MaxState)
	return s, value, d.Err()
}
