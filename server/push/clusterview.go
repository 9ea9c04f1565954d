package push

import "github.com/myriad-go/myriad/server/push/bus"

// This file is what operators see of a cluster and change in it.

// A NodeView is how one node is doing, as it says itself.
type NodeView struct {
	clusterNode
	Problem string   `json:"problem"` // why it does not have what the others publish; empty if it does
	Lag     uint64   `json:"lag"`     // messages of logs that it has not received yet
	Led     int      `json:"led"`     // logs that it leads
	Hears   []string `json:"hears"`   // the other nodes from which it has a sign of life
}

func (n *node) viewHere() NodeView {
	state := n.bus.State()
	view := NodeView{clusterNode: n.describe(), Problem: state.Problem, Lag: lagOf(state), Led: ledBy(state, n.name),
		Hears: []string{}}
	for _, other := range state.Nodes {
		if !other.Self && heardOf(other) {
			view.Hears = append(view.Hears, other.Name)
		}
	}
	return view
}

// heardOf reports whether node n is itself, or has given a sign of life lately.
func heardOf(n bus.NodeState) bool { return n.Self || n.Seen < silentNode }

// lagOf returns how many messages of logs this node has not received yet.
func lagOf(s bus.State) (messages uint64) {
	for _, l := range s.Logs {
		messages += l.Last - min(l.Followed, l.Last)
	}
	return messages
}

// ledBy returns how many logs the node leads.
func ledBy(s bus.State, node string) (logs int) {
	for _, l := range s.Logs {
		if l.Leader == node {
			logs++
		}
	}
	return logs
}
