package natsbus

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/myriad-go/myriad/server/push/bus"
)

// maxRetentions bounds the retentions of a cluster: each has Parts logs, which every node follows.
const maxRetentions = 16

// logs are the logs that this node follows.
type logs struct {
	streams   *streams
	questions *questions
	registry  *registry
	parts     int // of each retention

	mu       sync.Mutex
	begun    bool
	closed   bool
	byID     map[logID]*follower
	byStream map[string]*follower
}

func newLogs(s *streams, q *questions, r *registry, parts int) *logs {
	return &logs{streams: s, questions: q, registry: r, parts: parts, byID: make(map[logID]*follower),
		byStream: make(map[string]*follower)}
}

// follow returns the logs of a retention, which this node follows from now on.
func (l *logs) follow(keep bus.Retention) ([]*follower, error) {
	if keep.Size <= 0 || keep.Age <= 0 {
		return nil, fmt.Errorf("natsbus: the retention %v: both a size and an age are needed", keep)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, bus.ErrClosed
	}
	if l.byID[logID{keep, 0, l.parts}] == nil && l.isFull() {
		return nil, fmt.Errorf("natsbus: more than %d retentions: let namespaces share theirs", maxRetentions)
	}
	list := make([]*follower, l.parts)
	for part := range list {
		list[part] = l.followLocked(logID{keep, part, l.parts})
	}
	return list, nil
}

// followOthers follows the logs that other nodes have made. They may be of a retention that this
// node's configuration does not have yet: a channel may be published to under both.
func (l *logs) followOthers(ctx context.Context) {
	names, err := l.streams.names(ctx)
	if err != nil {
		return // the next look tries again
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		id, ok := parseStream(l.streams.prefix, name)
		if ok && !l.closed && !l.isFull() {
			l.followLocked(id)
		}
	}
}

// isFull reports whether this node follows as many logs as it may. The caller holds mu.
func (l *logs) isFull() bool { return len(l.byID) >= maxRetentions*l.parts }

// followLocked returns the follower of one log. The caller holds mu.
func (l *logs) followLocked(id logID) *follower {
	f := l.byID[id]
	if f == nil {
		f = newFollower(id.name(l.streams.prefix), l.streams, l.questions, l.registry)
		l.byID[id], l.byStream[f.stream] = f, f
		if l.begun {
			f.done.Go(f.run)
		}
	}
	return f
}

// of returns the follower of t's log.
func (l *logs) of(t bus.Topic) (*follower, error) {
	id := idOf(t, l.parts)
	l.mu.Lock()
	f := l.byID[id]
	l.mu.Unlock()
	if f != nil {
		return f, nil
	}
	list, err := l.follow(t.Keep)
	if err != nil {
		return nil, err
	}
	return list[id.part], nil
}

// live returns the follower of t's log when it is live.
func (l *logs) live(ctx context.Context, t bus.Topic) (*follower, error) {
	f, err := l.of(t)
	if err != nil {
		return nil, err
	}
	return f, f.progress.waitFor(ctx, 0)
}

// placed is live for a caller that needs a place in the log, and not what it has now: a log that
// goes on from a place has it already.
func (l *logs) placed(ctx context.Context, t bus.Topic) (*follower, error) {
	f, err := l.of(t)
	if err != nil || f.progress.hasPlace() {
		return f, err
	}
	return f, f.progress.waitFor(ctx, 0)
}

// begin starts the followers, and those that are added later. It does nothing after close.
func (l *logs) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.begun = true
	for _, f := range l.byID {
		f.done.Go(f.run)
	}
}

// places returns how far the logs are followed. The error names one that is not followed now, whose
// place says nothing.
func (l *logs) places() (all map[logID]place, err error) {
	all = make(map[logID]place)
	for _, f := range l.all() {
		p := f.progress.place()
		p.markAt = f.epochs.markAt.Load()
		all[f.id] = p
		if !p.known {
			_, problem := f.progress.state()
			err = fmt.Errorf("natsbus: the log %s is not followed: %s", f.stream, problem)
		}
	}
	return all, err
}

// goOnFrom makes logs that have not begun go on from these places.
func (l *logs) goOnFrom(places map[logID]place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, p := range places {
		f := l.followLocked(id)
		f.progress.setPlace(p)
		f.epochs.hearMark(p.markAt)
	}
}

// all returns the followers of all logs.
func (l *logs) all() []*follower {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.byID))
}

// vouch answers which epoch of a log this node follows.
func (l *logs) vouch(body []byte) []byte {
	r := reader{rest: body}
	name := r.text()
	l.mu.Lock()
	f := l.byStream[name]
	l.mu.Unlock()
	if f == nil {
		return appendText(nil, "")
	}
	return appendText(nil, f.progress.liveEpoch())
}

// forgetReplicas makes readers check again how far the replica is: it may be another one now.
func (l *logs) forgetReplicas() {
	for _, f := range l.all() {
		f.progress.forgetReplica()
	}
}

// states returns all logs, and why one of them is not followed or "".
func (l *logs) states() (list []bus.LogState, problem string) {
	for _, f := range l.all() {
		state, why := f.progress.state()
		list = append(list, state)
		if why != "" && problem == "" {
			problem = "the log " + state.Name + " is not followed: " + why
		}
	}
	return list, problem
}

// close stops all followers, and lets none start.
func (l *logs) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	for _, f := range l.all() {
		f.close()
	}
}
