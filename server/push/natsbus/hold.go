package natsbus

import (
	"context"
	"maps"
	"sync"
	"time"
)

// This file holds publications that no log keeps while a node moves to another process: it could
// not read them later. The node that moves asks the others for that right before it is silent, and
// they go on when it says that it is back. That node holds its own publications until the others
// have given a sign.

const (
	questionHold = "hold"
	// holdFor bounds how long publications are held: the node may have died.
	holdFor = 2 * time.Second
	// holdAsked bounds how long the node that moves waits for the others' word; its clients wait,
	// too.
	holdAsked = 200 * time.Millisecond
)

// holds are the nodes for which this one holds publications.
type holds struct {
	sending sync.RWMutex // held for reading while one is sent
	until   map[string]time.Time
	changed chan struct{} // closed and replaced when one is back
}

func newHolds() *holds {
	return &holds{until: make(map[string]time.Time), changed: make(chan struct{})}
}

// begin holds publications for a node. When it returns, what was sent before has gone to NATS.
func (h *holds) begin(node string) {
	h.sending.Lock()
	defer h.sending.Unlock()
	now := time.Now()
	maps.DeleteFunc(h.until, func(_ string, until time.Time) bool { return !now.Before(until) }) // they have died
	if len(h.until) < maxNodes {
		h.until[node] = now.Add(holdFor)
	}
}

// end says that a node is back, or will not be.
func (h *holds) end(node string) {
	h.sending.Lock()
	defer h.sending.Unlock()
	if _, held := h.until[node]; held {
		delete(h.until, node)
		close(h.changed)
		h.changed = make(chan struct{})
	}
}

// enter returns when publications are not held, or with ctx's error. After nil the caller calls
// leave when it has sent its own.
func (h *holds) enter(ctx context.Context) error {
	for {
		h.sending.RLock()
		left := h.left()
		if left <= 0 {
			return nil
		}
		changed := h.changed
		h.sending.RUnlock()
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (h *holds) leave() { h.sending.RUnlock() }

// left returns for how long publications are still held. The caller holds sending.
func (h *holds) left() (longest time.Duration) {
	for _, until := range h.until {
		longest = max(longest, time.Until(until))
	}
	return longest
}

// askHold has the other nodes hold their publications that no log keeps. Those that do not answer
// soon may pass some that this node misses.
func (s *session) askHold(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, holdAsked)
	defer cancel()
	_, err := s.questions.ask(ctx, questionHold, appendText(nil, s.node), func([]byte) {})
	if err != nil {
		s.log.Warn("natsbus: other nodes do not wait while this one moves: what they publish without a history may "+
			"be missed here", "error", err)
	}
}

// hold is the answer to askHold.
func (s *session) hold(body []byte) []byte {
	r := reader{rest: body}
	if name := r.text(); name != "" && !r.wrong {
		s.passing.holds.begin(name)
		s.nodes.hear(name, signAway)
	}
	return nil
}

// nodeReturned is called when a node is back that was away.
func (s *session) nodeReturned(name string) {
	s.passing.holds.end(name)
	s.questions.tellReturned(name)
}
