package natsbus

import (
	"context"
	"time"
)

// This file moves the leaders of logs. A node that stops while it leads takes no publications for
// its logs until the others have noticed, which takes seconds; one that steps down first loses
// none. After restarts the leaders are with the nodes that stayed.

// preference asks for a leader. NATS chooses another one if that node cannot lead.
type preference struct {
	Placement *struct {
		Preferred string `json:"preferred"`
	} `json:"placement,omitempty"`
}

func (f *follower) stepDown(ctx context.Context, to string) error {
	var body preference
	if to != "" {
		body.Placement = &struct {
			Preferred string `json:"preferred"`
		}{to}
	}
	return f.b.call(ctx, "STREAM.LEADER.STEPDOWN."+f.stream, body, nil)
}

// StepDown makes other nodes lead the logs that this one leads, as far as there are others. It
// returns when they do, or ctx ends.
func (b *Bus) StepDown(ctx context.Context) {
	b.stepping.Store(true) // from now on, balance moves no leader
	for _, f := range b.followers() {
		for ctx.Err() == nil {
			i, err := b.info(ctx, f.stream)
			if err != nil || i.Cluster == nil || i.Cluster.Leader != b.config.Node || i.Config.Replicas < 3 {
				break
			}
			if err := f.stepDown(ctx, ""); err != nil {
				b.log.Warn("natsbus: a log could not get another leader yet", "log", f.stream, "error", err)
			}
			f.pause(50 * time.Millisecond)
		}
	}
}

func (b *Bus) followers() (list []*follower) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.logs {
		list = append(list, f)
	}
	return list
}

// balance gives one log that this node leads to the node that leads the fewest, if that has at
// least two less.
func (b *Bus) balance(ctx context.Context) {
	if b.stepping.Load() {
		return
	}
	leads := map[string]int{b.config.Node: 0}
	for name := range b.nodes.alive() {
		leads[name] = 0
	}
	var mine *follower
	for _, f := range b.followers() {
		f.mu.Lock()
		i := f.info
		f.mu.Unlock()
		if i.Cluster == nil || i.Config.Replicas < 3 {
			continue
		}
		leads[i.Cluster.Leader]++
		if i.Cluster.Leader == b.config.Node {
			mine = f
		}
	}
	fewest := b.config.Node
	for name, n := range leads {
		if n < leads[fewest] || n == leads[fewest] && name < fewest {
			fewest = name
		}
	}
	if mine == nil || leads[b.config.Node]-leads[fewest] < 2 {
		return
	}
	err := mine.stepDown(ctx, fewest)
	b.log.Info("natsbus: another node is to lead a log", "log", mine.stream, "node", fewest, "error", err)
}
