package natsbus

import (
	"time"
)

// This file reads what a follower has not heard.

const (
	fillBatch = 256
	// fillTime is how long a replica may be behind before the leader is asked, message by message.
	fillTime  = time.Second
	fillPause = 5 * time.Millisecond
)

// fill delivers everything after the follower's position up to at least seq, or as much as it can
// get. The log has messages up to seq, although some may have been dropped since. The caller holds
// work.
func (f *follower) fill(seq uint64) {
	began := time.Now()
	for f.state == followLive && f.ctx.Err() == nil {
		last, _ := f.position()
		if last >= seq {
			return
		}
		list, err := f.readOn(last, time.Since(began) > fillTime)
		if err != nil {
			f.b.log.Warn("natsbus: what a log has published could not be read", "log", f.stream, "after", last,
				"error", err)
			return // the next look tries again
		}
		if len(list) == 0 {
			if time.Since(began) > 2*fillTime { // the leader does not have it either: it was dropped
				f.skipTo(seq)
				return
			}
			f.pause(fillPause)
			continue
		}
		f.take(list)
	}
}

// readOn returns messages after last, from the nearest replica or from the leader.
func (f *follower) readOn(last uint64, leader bool) ([]stored, error) {
	if !leader {
		list, _, err := f.b.direct(f.ctx, f.stream, directGet{Seq: last + 1, Next: ">", Batch: fillBatch})
		return list, err
	}
	s, found, err := f.b.leaderGet(f.ctx, f.stream, directGet{Seq: last + 1, Next: ">"})
	if !found || err != nil {
		return nil, err
	}
	return []stored{s}, nil
}

// take delivers messages that were read. If one before them is missing, the log has dropped it, and
// it may have been any channel's: they all have to recover. The caller holds work.
func (f *follower) take(list []stored) {
	for _, s := range list {
		last, _ := f.position()
		switch {
		case s.seq <= last:
			continue
		case s.seq > last+1:
			f.b.log.Warn("natsbus: a log has dropped messages before this node had them", "log", f.stream,
				"after", last, "until", s.seq)
			f.loseAll()
		}
		f.deliver(s)
	}
	if n := len(list); n > 0 {
		f.mu.Lock()
		f.replica = max(f.replica, list[n-1].seq)
		f.mu.Unlock()
	}
}

// skipTo goes on after seq. The caller holds work.
func (f *follower) skipTo(seq uint64) {
	f.mu.Lock()
	if seq > f.last {
		f.last = seq
		f.tail.reset(seq)
	}
	f.mu.Unlock()
	f.loseAll()
}

// lookAtReplica delivers what the log has and the follower has not heard. It reads without work, so
// that a replica that answers late holds up neither what comes meanwhile nor subscribers.
func (f *follower) lookAtReplica() {
	for f.isLive() {
		last, _ := f.position()
		list, _, err := f.b.direct(f.ctx, f.stream, directGet{Seq: last + 1, Next: ">", Batch: fillBatch})
		if err != nil || len(list) == 0 {
			return // the leader's look says whether that is a problem
		}
		f.work.Lock()
		if f.state == followLive {
			f.take(list)
		}
		f.work.Unlock()
	}
}

// rollbackLooks is how many looks in a row have to find the log's leader behind this node. A new
// leader is behind while it applies what its predecessor has committed.
const rollbackLooks = 4

// lookAtLeader compares the follower with the log's leader: a replica that hangs does not know it.
func (f *follower) lookAtLeader() {
	before, _ := f.position()
	i, err := f.b.info(f.ctx, f.stream)
	if err != nil {
		f.setProblem("its leader does not answer: " + err.Error())
		return
	}
	f.grow(i)
	f.work.Lock()
	defer f.work.Unlock()
	last, _ := f.position()
	f.mu.Lock()
	f.info = i
	f.mu.Unlock()
	switch {
	case i.State.Last < before:
		if f.behind++; f.behind >= rollbackLooks {
			f.behind = 0
			f.rollback("the leader has fewer messages than this node has received")
		}
		return
	case last < i.State.Last && last == before:
		if f.ahead++; f.ahead > 1 { // the replica had a second since the last look
			f.setProblem("messages are missing")
			f.fill(i.State.Last)
		}
	default:
		f.ahead = 0
	}
	f.behind = 0
	switch last, _ := f.position(); {
	case !i.hasQuorum():
		f.setProblem("most of its replicas are silent: it stores nothing")
	case last >= i.State.Last || f.ahead == 0:
		f.setProblem("")
	}
}

// grow gives the log more replicas, if this node leads it and there are more nodes now.
func (f *follower) grow(i streamInfo) {
	want := f.b.replicas()
	if i.Cluster == nil || i.Cluster.Leader != f.b.config.Node || i.Config.Replicas >= want {
		return
	}
	err := f.b.call(f.ctx, "STREAM.UPDATE."+f.stream, f.b.streamConfig(f.id, want), nil)
	f.b.log.Info("natsbus: a log gets more replicas", "log", f.stream, "replicas", want, "error", err)
}
