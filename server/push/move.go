package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/snapshot"
	"github.com/myriad-go/myriad/server/push/membus"
	"github.com/myriad-go/myriad/server/push/policy"
)

// This file moves a server to another process: what the server itself holds. The connections move
// beside it, each with the state that its door writes.

var (
	// ErrCannotMove is returned by Freeze for a server whose bus is not its own: what that holds
	// belongs to several servers, or to a cluster.
	ErrCannotMove = errors.New("push: the server uses a bus that is not its own, and cannot move to another process")
	errPing       = errors.New("clients were told how often they are pinged, and would take a longer silence for " +
		"the end: do not raise it in an upgrade")
)

// Freeze stops the server until Thaw or Leave, so that another process can go on with it. When it
// returns nil, everything that was published is queued for its subscribers, and nothing changes any
// more. Publications, other calls, and requests of clients wait until their contexts end. Deadlines
// of clients wait, too. If ctx ends before, Freeze returns its error, and the server
// goes on. Nothing may read from the connections of clients meanwhile.
//
// A server freezes for WriteState, and a new one for ReadState.
func (s *Server) Freeze(ctx context.Context) error {
	if s.own == nil {
		return ErrCannotMove
	}
	if err := s.hub.Freeze(ctx); err != nil {
		return err
	}
	if err := s.own.Freeze(ctx); err != nil {
		s.hub.Thaw()
		return err
	}
	return nil
}

// Thaw ends a freeze: what waits goes on. After ReadState, and when the connections have moved, it
// begins the work of this process.
func (s *Server) Thaw() {
	s.sampler.goOn(s.config.Clock.Now())
	s.own.Thaw()
	s.hub.Thaw()
}

// Leave ends a freeze when another process has all: what waits is refused with ErrDraining, and
// requests with status 503. Nothing that was refused has been published. The caller then calls
// Shutdown, which disconnects the clients that have not moved.
func (s *Server) Leave() {
	s.hub.Leave()
	_ = s.own.Close() // it has no error
}

// The parts of the state of a server, besides those of its hub and its bus.
const timingPart = "push.timing.1" // what clients were told of pings

// StateParts are the names of the parts that WriteState and the doors of s write, and that
// ReadState understands. A part that changes its form gets another name. A server can move to one
// that understands all of its parts.
func (s *Server) StateParts() []string {
	return slices.Concat([]string{timingPart, policy.RulesPart, sampleFieldsPart, samplePart}, membus.StateParts(),
		hub.StateParts(), s.hub.StateNames())
}

// WriteState writes what the server holds besides its connections: histories of channels with their
// positions, remembered IDs of publications, what is used of rates, counters, and what the console
// shows of the last minutes. The server is frozen. It needs no memory in proportion to that.
func (s *Server) WriteState(to io.Writer) error {
	w := snapshot.NewWriter(to, s.StateParts())
	timing := s.hub.Timing()
	record := snapshot.AppendInt(nil, int64(timing.Ping))
	rules := s.hub.Table().Namespaces()
	return errors.Join(w.Record(timingPart, record), rules.WriteState(w), s.own.WriteState(w), s.hub.WriteState(w),
		s.sampler.writeState(w), w.Close())
}

// ReadState gives a new server what another one has written. The server is frozen, and has had no
// client. The error says what it does not understand, or which option cannot change while clients
// are connected; then the server is useless, and the other one goes on. ReadState may read more of
// from than what was written.
func (s *Server) ReadState(from io.Reader) error {
	s.sampler.restore()
	r, err := snapshot.NewReader(from, s.StateParts())
	if err != nil {
		return err
	}
	histories, err := s.own.Restore()
	if err != nil {
		return err
	}
	rest, err := s.hub.Restore()
	if err != nil {
		return err
	}
	rules, samples := policy.LastingRules{}, sampleRestore{s: s.sampler}
	for {
		part, body, err := r.Next()
		switch {
		case err == io.EOF:
			next := s.hub.Table().Namespaces()
			return errors.Join(histories.Done(), rules.CheckChange(&next))
		case err != nil:
			return err
		case part == timingPart:
			err = s.checkTiming(body)
		case part == policy.RulesPart:
			err = rules.Record(body)
		case part == sampleFieldsPart || part == samplePart:
			err = samples.record(part, body)
		case slices.Contains(membus.StateParts(), part):
			err = histories.Record(part, body)
		default:
			err = rest.Record(part, body)
		}
		if err != nil {
			return err
		}
	}
}

// checkTiming compares what clients were told of pings.
func (s *Server) checkTiming(body []byte) error {
	f := snapshot.NewFields(body)
	told := time.Duration(f.Int())
	if err := f.Done(); err != nil {
		return fmt.Errorf("push: %s: %w", timingPart, err)
	}
	if now := s.hub.Timing().Ping; now > told {
		return fmt.Errorf("push: the interval of pings is %v, and was %v: %w", now, told, errPing)
	}
	return nil
}
