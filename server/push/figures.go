package push

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/myriad-go/myriad"
)

// This file is what the server tells its operators.

// Figures are counters of a server, and samples of its last minutes.
type Figures struct {
	Connections     int64
	Channels        int // with subscribers
	Publishes       uint64
	Messages        uint64 // publications queued, counted once for each subscriber
	SlowDisconnects uint64
	Uptime          time.Duration
	Slow            []SlowClient // the latest that were disconnected, the newest first
	Fields          []string     // of a sample, in order
	Samples         [][]int64    // one a second, the oldest first; none without a console
}

// Figures returns the figures of this node, with the samples that are newer than after, in
// milliseconds since 1970.
func (s *Server) Figures(after int64) Figures {
	n := s.node
	return Figures{
		Connections: n.count.connections.Load(), Channels: n.hub.channels(), Publishes: n.count.publishes.Load(),
		Messages: n.count.messages.Load(), SlowDisconnects: n.count.slow.Load(),
		Uptime: n.clock.Now().Sub(n.started), Slow: n.slowest.newestFirst(), Fields: sampleFields,
		Samples: n.sampler.since(after),
	}
}

// Engine returns Config.Engine.
func (s *Server) Engine() *myriad.Engine { return s.node.engine }

// IsOpen reports whether the server requires neither keys nor tokens.
func (s *Server) IsOpen() bool { return s.isOpen() }

// Refusals returns how many refusals of each reason there have been, the latest with a number above
// after, the newest first, and the number of the last one.
func (s *Server) Refusals(after uint64) (counts map[string]uint64, latest []ShownRefusal, last uint64) {
	counts = make(map[string]uint64, refusalReasons)
	for why := range refusalReasons {
		counts[why.String()] = s.node.refusals.counts[why].Load()
	}
	latest, last = s.node.refusals.since(after)
	return counts, latest, last
}

// Namespaces returns the rules of all namespaces, those of the one without a name first. They do
// not change.
func (s *Server) Namespaces() []*Namespace { return s.node.rules.Load().all() }

// DeniesClientPublish returns Config.DenyClientPublish.
func (s *Server) DeniesClientPublish() bool { return s.node.denyClientPublish }

// ExplainToken is the function ExplainToken with the keys and the rules that this server uses.
func (s *Server) ExplainToken(token string, channels []string) (TokenExplanation, error) {
	return s.node.explainToken(token, channels)
}

// FindChannels lists at most `most` channels of all nodes whose names contain part, those with the
// most subscribers first.
func (s *Server) FindChannels(ctx context.Context, part string, most int) (ChannelList, error) {
	return s.node.allChannels(ctx, operation{Pattern: part, Contains: true, Most: most})
}

// FindConnections lists at most `most` connections of all nodes of which part is in the user, or at
// the beginning of the client id.
func (s *Server) FindConnections(ctx context.Context, part string, most int) (ConnectionList, error) {
	return s.node.allConnections(ctx, operation{User: part, Contains: true, Most: most})
}

// ViewNodes returns how each node is doing, as it says itself, in the order of their names.
func (s *Server) ViewNodes(ctx context.Context) ([]NodeView, error) {
	list := []NodeView{}
	err := askAll(ctx, s.node, "state", operation{}, func(n NodeView) { list = append(list, n) })
	slices.SortFunc(list, func(a, b NodeView) int { return cmp.Compare(a.Name+a.ID, b.Name+b.ID) })
	return list, err
}

// NodeRemover returns Config.RemoveNode.
func (s *Server) NodeRemover() func(ctx context.Context, node string) error { return s.removeNode }
