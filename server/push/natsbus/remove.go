package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// removeTime is how long Remove tries: longer than an election takes.
const removeTime = 25 * time.Second

// These are err_codes of JetStream for removing a server.
const (
	codeNotMember    = 10044 // "server is not a member of the cluster"
	codeBeingChanged = 10202 // "cluster member change is in progress"
)

// Remove makes the cluster forget a node that is gone for good, so that another one stores its part
// of the logs. If the node led the cluster, the others elect a leader first: Remove asks until one
// answers, for 25 seconds at most.
//
// Remove refuses to leave a cluster of one node. JetStream permits it, but the remaining node could
// not store anything, and the other one would lose its logs if it came back.
func (s *Server) Remove(ctx context.Context, node string) error {
	nc, err := s.connectSystem()
	if err != nil {
		return fmt.Errorf("natsbus: connecting to remove a node: %w", err)
	}
	defer nc.Close()
	body, err := json.Marshal(map[string]string{"peer": node})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	for {
		if s.clusterSize() == 2 {
			return fmt.Errorf("natsbus: the cluster has two nodes, and none of two can be removed: if the machine or "+
				"the disk of %q is lost, start a node with the same name and an empty folder", node)
		}
		err := removeOnce(ctx, nc, body)
		switch {
		case isCode(err, codeNotMember):
			return fmt.Errorf("natsbus: %q is no node of the cluster, or is none any more: %w", node, err)
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded),
			isCode(err, codeBeingChanged): // ask again
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("natsbus: a node cannot be removed while the cluster has no leader; are most of its "+
				"nodes up? %w", err)
		case <-time.After(tryAgain):
		}
	}
}

// clusterSize returns how many nodes the cluster has, those that are down included. It returns 0
// while this node does not know.
func (s *Server) clusterSize() int {
	started, _, _ := s.running()
	if started == nil {
		return 0
	}
	info, err := started.Jsz(nil)
	if err != nil || info.Meta == nil {
		return 0
	}
	return info.Meta.Size
}

// removeOnce sends one request, and waits as long as one may take.
func removeOnce(ctx context.Context, nc *nats.Conn, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, "$JS.API.SERVER.REMOVE", body)
	if err != nil {
		return err
	}
	return decode(m, nil)
}
