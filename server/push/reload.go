package push

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/myriad-go/myriad/server/push/bus"
)

// This file checks whether namespaces can change while the server runs.

// ErrNeedsRestart is the error of CheckNamespaces and Reload for namespaces that are valid, and to
// which a running server cannot change.
var ErrNeedsRestart = errors.New("push: restart the server for that")

// CheckNamespaces returns why a running server cannot change to c.Namespaces. Channels keep what
// they have from their rules while they have subscribers: the history, its age, recovery, join and
// leave notices, and the policy for slow subscribers. So these cannot change for any channel, and
// in a cluster all nodes must agree on histories.
func (s *Server) CheckNamespaces(c Config) error {
	_, err := s.nextRules(c)
	return err
}

// nextRules returns the rules of c.Namespaces, or those in use if that is nil.
func (s *Server) nextRules(c Config) (namespaces, error) {
	if c.Namespaces == nil {
		return *s.node.rules.Load(), nil
	}
	next, err := newNamespaces(c.Namespaces, s.node.tokens != nil)
	err = errors.Join(err, s.node.hooks.check(c.Namespaces), checkUsers(c.Namespaces, s.node.authenticates()))
	if err != nil {
		return next, err
	}
	now := s.node.rules.Load()
	names := maps.Clone(now.named)
	maps.Copy(names, next.named)
	for _, name := range append(slices.Sorted(maps.Keys(names)), "") {
		before, after := now.of(name+":"), next.of(name+":")
		if before.lasting() != after.lasting() {
			err = errors.Join(err, fmt.Errorf("push: namespace %q: the history, recovery, join-leave and slow rules "+
				"of its channels cannot change while the server runs: %w", name, ErrNeedsRestart))
		}
	}
	return next, err
}

// lastingRules are those that channels keep while they have subscribers.
type lastingRules struct {
	keep                bus.Retention
	recovery, joinLeave bool
	slow                SlowPolicy
	slowQueue           int
}

func (ns *Namespace) lasting() lastingRules {
	return lastingRules{ns.retention(), ns.Recovery, ns.JoinLeave, ns.Slow, ns.SlowQueue}
}
