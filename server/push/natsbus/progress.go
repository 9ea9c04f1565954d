package natsbus

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A progress is how far a node has followed a log, and whether it follows it now. Any goroutine may
// read it, and wait for a place in the log; the follower moves it on.
type progress struct {
	stream  string
	closing <-chan struct{} // closed when the session ends

	mu      sync.Mutex
	live    chan struct{} // closed while the follower is live
	problem string        // why it is not; empty if it is
	last    uint64        // everything up to it has been delivered
	lastAt  int64         // the time of that message
	epoch   string        // of the log
	epochAt uint64        // sequence number of the message that says so
	tail    tail          // what was delivered lately
	replica uint64        // a replica that answers direct gets has everything up to it
	info    streamInfo    // as it was last seen
	moved   chan struct{} // closed and replaced when last changes, if waiting > 0
	waiting int
	placed  bool // it goes on from last, which it has of an earlier session
}

// A place is how far a log has been followed.
type place struct {
	known   bool   // it was followed; otherwise only the epoch counts
	last    uint64 // everything up to it has been delivered
	lastAt  int64  // the time of that message
	epoch   string
	epochAt uint64 // sequence number of the message that says so
	markAt  int64  // of the last mark
}

func newProgress(stream string, closing <-chan struct{}) *progress {
	return &progress{stream: stream, closing: closing, live: make(chan struct{}), moved: make(chan struct{}),
		problem: "it starts"}
}

// startAt begins anew with the message s, which is the last before those that are delivered.
func (p *progress) startAt(s stored) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.lastAt, p.replica = s.seq, s.at, 0
	p.tail.reset(s.seq)
}

// place returns how far the log is followed, or the place from which it is to go on.
func (p *progress) place() place {
	p.mu.Lock()
	defer p.mu.Unlock()
	return place{known: p.isLive() || p.placed, last: p.last, lastAt: p.lastAt, epoch: p.epoch, epochAt: p.epochAt}
}

// isLive reports whether the follower is live. The caller holds mu.
func (p *progress) isLive() bool {
	select {
	case <-p.live:
		return true
	default:
		return false
	}
}

// setPlace makes it go on from a place.
func (p *progress) setPlace(at place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epoch, p.epochAt = at.epoch, at.epochAt
	if !at.known {
		return
	}
	p.last, p.lastAt = at.last, at.lastAt
	p.tail.reset(at.last)
	p.placed, p.problem = true, "it goes on"
}

// hasPlace reports whether it goes on from a place.
func (p *progress) hasPlace() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.placed
}

// losePlace makes it begin anew.
func (p *progress) losePlace() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.placed = false
}

// goLive says that the follower is live.
func (p *progress) goLive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.placed = false
	close(p.live)
}

// interrupt says that the follower is live no more, and why.
func (p *progress) interrupt(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live = make(chan struct{})
	p.problem = why
}

// setProblem notes why the follower does not get on, or with "" that it does. It reports whether
// that is new.
func (p *progress) setProblem(why string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := p.problem != why
	p.problem = why
	return changed
}

// advance moves on to s, which is being delivered.
func (p *progress) advance(s stored) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.seq != p.last+1 {
		p.tail.reset(s.seq - 1)
	}
	p.tail.add(s)
	p.last, p.lastAt = s.seq, s.at
	if p.waiting > 0 {
		close(p.moved)
		p.moved, p.waiting = make(chan struct{}), 0
	}
}

// skipTo moves on to a sequence number although messages before it were not delivered.
func (p *progress) skipTo(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if seq > p.last {
		p.last = seq
		p.tail.reset(seq)
	}
}

// position returns the last message that was delivered, and its time.
func (p *progress) position() (last uint64, at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.lastAt
}

// recent returns the position of a channel's history now, and the messages of the channel that are
// in memory, as far as they are after a sequence number. Memory has all messages after from.
func (p *progress) recent(channel, subject string, after uint64) (top bus.Position, list []stored, from uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bus.Position{Offset: p.last, Epoch: channelEpoch(p.epoch, channel)}, p.tail.of(subject, after), p.tail.from
}

// setEpoch notes the log's epoch and the message that says so. It reports whether it is another.
func (p *progress) setEpoch(epoch string, at uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := p.epoch != epoch
	p.epoch, p.epochAt = epoch, at
	return changed
}

func (p *progress) epochNow() string {
	epoch, _ := p.epochStored()
	return epoch
}

// epochStored returns the log's epoch, and the sequence number of the message that says so.
func (p *progress) epochStored() (epoch string, at uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch, p.epochAt
}

// liveEpoch returns the log's epoch if the follower is live, or else "".
func (p *progress) liveEpoch() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isLive() {
		return p.epoch
	}
	return ""
}

// replicaHas notes that the replica that answers direct gets has everything up to seq.
func (p *progress) replicaHas(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replica = max(p.replica, seq)
}

// isInReplica reports whether replicaHas has been called with seq or more.
func (p *progress) isInReplica(seq uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replica >= seq
}

// forgetReplica makes readers check again how far the replica is: it may be another one now.
func (p *progress) forgetReplica() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replica = 0
}

// saw notes what the log's leader says of it.
func (p *progress) saw(i streamInfo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.info = i
}

// lastInfo returns what the log's leader has said of it last.
func (p *progress) lastInfo() streamInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.info
}

// state returns the log as Bus.State shows it, and why it is not followed or "".
func (p *progress) state() (l bus.LogState, problem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l = bus.LogState{Name: p.stream, Followed: p.last, Last: max(p.last, p.info.State.Last),
		Replicas: p.info.Config.Replicas, Current: 1}
	if c := p.info.Cluster; c != nil {
		l.Leader = c.Leader
		for _, r := range c.Replicas {
			if r.Current && !r.Offline {
				l.Current++
			}
		}
	}
	return l, p.problem
}

// waitFor returns when the follower is live and has delivered everything up to seq.
func (p *progress) waitFor(ctx context.Context, seq uint64) error { return p.waitUnless(ctx, seq, nil) }

// errOther says that what was waited for besides has come first.
var errOther = errors.New("natsbus: something else has come first")

// waitUnless is waitFor until other is closed; then it returns errOther.
func (p *progress) waitUnless(ctx context.Context, seq uint64, other <-chan struct{}) error {
	for {
		p.mu.Lock()
		isLive, wait := p.isLive(), p.moved
		if !isLive {
			wait = p.live
		}
		if isLive && p.last >= seq {
			p.mu.Unlock()
			return nil
		}
		p.waiting++
		p.mu.Unlock()
		select {
		case <-wait:
		case <-other:
			return errOther
		case <-ctx.Done():
			return p.late(ctx)
		case <-p.closing:
			return bus.ErrClosed
		}
	}
}

// late returns the error of a call whose ctx has ended before the log was followed far enough.
func (p *progress) late(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.problem != "" {
		return fmt.Errorf("natsbus: the log %s is not followed: %s: %w", p.stream, p.problem, ctx.Err())
	}
	return fmt.Errorf("natsbus: the log %s is not followed that far: %w", p.stream, ctx.Err())
}
