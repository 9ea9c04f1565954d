package natsbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// leaders moves the leaders of logs. When a node stops while it leads, its logs take no
// publications for the seconds until the others have noticed. If it steps down first, no time is
// lost. After restarts the leaders are with the nodes that stayed.
type leaders struct {
	*streams
	logs     *logs
	stepping atomic.Bool // stepDownAll has been called
}

// stepDownAll makes other nodes lead the logs that this one leads, as far as there are others. It
// returns when they do, or ctx ends.
func (l *leaders) stepDownAll(ctx context.Context) {
	l.stepping.Store(true) // from now on, balance moves no leader
	for _, f := range l.logs.all() {
		for ctx.Err() == nil {
			i, err := l.info(ctx, f.stream)
			if err != nil || i.Cluster == nil || i.Cluster.Leader != l.node || i.Config.Replicas < 3 {
				break
			}
			if err := l.stepDown(ctx, f.stream, l.successor(&i)); err != nil {
				l.log.Warn("natsbus: a log could not get another leader yet", "log", f.stream, "error", err)
			}
			f.pause(50 * time.Millisecond)
		}
	}
}

// successor returns the node that is to lead a log after this one: of those that have all of it,
// the one that leads the fewest. One that is behind would lose the election, and the log would take
// no publications for seconds. It returns "" if there is none.
func (l *leaders) successor(i *streamInfo) (name string) {
	ready, leads := i.ready(l.nodes.unfit()), make(map[string]int)
	for _, f := range l.logs.all() {
		if c := f.progress.lastInfo().Cluster; c != nil {
			leads[c.Leader]++
		}
	}
	for _, other := range ready {
		if name == "" || leads[other] < leads[name] {
			name = other
		}
	}
	return name
}

// stepDownPoll is how often a node that steps down looks whether it leads no more.
const stepDownPoll = 10 * time.Millisecond

// giveAway has other nodes lead all logs, and the cluster, before this one is silent for a moment.
// It returns an error if ctx ends while a log would take no publications then.
func (l *leaders) giveAway(ctx context.Context) error {
	if err := l.awaitCurrent(ctx); err != nil { // it would also be shut down while it opens its stores
		return fmt.Errorf("natsbus: this node has not caught up with the logs: %w", err)
	}
	l.stepping.Store(true) // from now on, balance moves no leader
	for _, f := range l.logs.all() {
		if err := l.giveLog(ctx, f); err != nil {
			return fmt.Errorf("natsbus: the log %s would take no publications: %w: wait until /health of all nodes "+
				"answers 200", f.stream, err)
		}
	}
	if s := l.config.Server; s != nil {
		return s.stepDownMeta(ctx, l.nodes.unfit())
	}
	return nil
}

// giveLog has another node lead a log. It returns when one does, and the log has a majority without
// this node.
func (l *leaders) giveLog(ctx context.Context, f *follower) error {
	for {
		i, err := l.infoSoon(ctx, f.stream)
		switch {
		case err != nil:
		case i.Cluster == nil || i.Config.Replicas < 3:
			return nil // only one node has it: it waits while that is silent
		case i.Cluster.Leader != l.node:
			if err = i.missesWithout(l.node, l.nodes.unfit()); err == nil {
				f.progress.saw(i) // for successor
				return nil
			}
		default:
			if err = i.missesWithout(l.node, l.nodes.unfit()); err != nil {
				break
			}
			if err = l.stepDown(ctx, f.stream, l.successor(&i)); err == nil {
				err = errLeadsItself
				l.awaitOther(ctx, f)
			}
		}
		if !f.pause(stepDownPoll) || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

const (
	// leaderSoon is how long a log that elects a leader is waited for, before it is asked again.
	leaderSoon = 200 * time.Millisecond
	// electionTime is more than an election takes that a leader has asked for.
	electionTime = time.Second
)

// infoSoon is info for a log that may have no leader at this moment: its question would be lost.
func (l *leaders) infoSoon(ctx context.Context, stream string) (streamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderSoon)
	defer cancel()
	return l.info(ctx, stream)
}

// awaitOther returns when another node leads the log, or after electionTime. A second step down
// would disturb the election of the first one.
func (l *leaders) awaitOther(ctx context.Context, f *follower) {
	for end := time.Now().Add(electionTime); time.Now().Before(end) && f.pause(stepDownPoll) && ctx.Err() == nil; {
		if i, err := l.infoSoon(ctx, f.stream); err == nil && i.Cluster != nil && i.Cluster.Leader != "" &&
			i.Cluster.Leader != l.node {
			return
		}
	}
}

var errLeadsItself = errors.New("this node leads it")

// leaveNone is stepDownAll for logs that this node leads again since giveAway.
func (l *leaders) leaveNone(ctx context.Context) error {
	s := l.config.Server
	if s == nil {
		return nil
	}
	started, _, _ := s.running()
	for _, f := range l.logs.all() {
		if started.JetStreamIsStreamLeader(clientAccount, f.stream) {
			l.stepDownAll(ctx)
			return ctx.Err()
		}
	}
	return nil
}

// currentPoll is how often a node that has begun looks whether its part of the logs is current.
const currentPoll = 50 * time.Millisecond

// awaitCurrent returns when this node stores all that the logs have which it stores, or with ctx's
// error. Until then it would win no election, or could not lead when it has.
func (l *leaders) awaitCurrent(ctx context.Context) error {
	if l.config.Server == nil {
		return nil
	}
	for _, f := range l.logs.all() {
		for {
			i, err := l.info(ctx, f.stream)
			if err == nil && (!i.isStoredBy(l.node) || l.config.Server.lastOf(f.stream) >= i.State.Last) {
				break
			}
			select {
			case <-time.After(currentPoll):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// balance gives one log that this node leads to the node that leads the fewest, if that has at
// least two less.
func (l *leaders) balance(ctx context.Context) {
	if l.stepping.Load() {
		return
	}
	leads := map[string]int{l.node: 0}
	for name := range l.nodes.alive() {
		leads[name] = 0
	}
	var mine *follower
	for _, f := range l.logs.all() {
		i := f.progress.lastInfo()
		if i.Cluster == nil || i.Config.Replicas < 3 {
			continue
		}
		leads[i.Cluster.Leader]++
		if i.Cluster.Leader == l.node {
			mine = f
		}
	}
	unfit := l.nodes.unfit()
	fewest := l.node
	for name, n := range leads {
		if unfit[name] {
			continue
		}
		if n < leads[fewest] || n == leads[fewest] && name < fewest {
			fewest = name
		}
	}
	if mine == nil || leads[l.node]-leads[fewest] < 2 {
		return
	}
	if i := mine.progress.lastInfo(); !slices.Contains(i.ready(unfit), fewest) {
		return // it would lose the election
	}
	err := l.stepDown(ctx, mine.stream, fewest)
	l.log.Info("natsbus: another node is to lead a log", "log", mine.stream, "node", fewest, "error", err)
}
