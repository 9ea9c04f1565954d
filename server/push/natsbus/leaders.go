package natsbus

import (
	"context"
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
			if err := l.stepDown(ctx, f.stream, ""); err != nil {
				l.log.Warn("natsbus: a log could not get another leader yet", "log", f.stream, "error", err)
			}
			f.pause(50 * time.Millisecond)
		}
	}
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
	fewest := l.node
	for name, n := range leads {
		if n < leads[fewest] || n == leads[fewest] && name < fewest {
			fewest = name
		}
	}
	if mine == nil || leads[l.node]-leads[fewest] < 2 {
		return
	}
	err := l.stepDown(ctx, mine.stream, fewest)
	l.log.Info("natsbus: another node is to lead a log", "log", mine.stream, "node", fewest, "error", err)
}
