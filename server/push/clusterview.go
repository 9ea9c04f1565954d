package push

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/myriad-go/myriad/server/push/bus"
)

// This file is what operators see of a cluster and change in it.

// A nodeView is how one node is doing, as it says itself.
type nodeView struct {
	clusterNode
	Problem string   `json:"problem"` // why it does not have what the others publish; empty if it does
	Lag     uint64   `json:"lag"`     // messages of logs that it has not received yet
	Led     int      `json:"led"`     // logs that it leads
	Hears   []string `json:"hears"`   // the other nodes from which it has a sign of life
}

func (n *node) viewHere() nodeView {
	state := n.bus.State()
	view := nodeView{clusterNode: n.describe(), Problem: state.Problem, Lag: lagOf(state), Led: ledBy(state, n.name),
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

// serveCluster sends how this node sees the cluster, and what each node says of itself. A server on
// its own has no links and no logs.
func (s *Server) serveCluster(w http.ResponseWriter, r *http.Request) {
	state := s.node.bus.State()
	shown := struct {
		Problem string          `json:"problem"`
		Links   []bus.NodeState `json:"links"`
		Logs    []bus.LogState  `json:"logs"`
		Nodes   []nodeView      `json:"nodes"`
	}{state.Problem, state.Nodes, state.Logs, []nodeView{}}
	err := askAll(r.Context(), s.node, "state", operation{}, func(n nodeView) {
		shown.Nodes = append(shown.Nodes, n)
	})
	if err != nil {
		writeError(w, http.StatusInternalServerError, apiInternal, s.explain("console", err).message)
		return
	}
	slices.SortFunc(shown.Nodes, func(a, b nodeView) int { return cmp.Compare(a.Name+a.ID, b.Name+b.ID) })
	body, err := json.Marshal(shown)
	if err != nil {
		panic("push: the state of a cluster is always JSON: " + err.Error())
	}
	writeJSON(w, http.StatusOK, body)
}

// serveRemove makes the cluster forget the node that is named in the query.
func (s *Server) serveRemove(w http.ResponseWriter, r *http.Request) {
	if !allowMethod(w, r, http.MethodPost) {
		return
	}
	name := r.URL.Query().Get("node")
	switch {
	case s.removeNode == nil:
		writeError(w, http.StatusNotFound, apiMethodNotFound, "this server is no part of a cluster that it runs itself")
	case name == "":
		writeError(w, http.StatusBadRequest, apiBadRequest, "node is missing")
	default:
		if err := s.removeNode(r.Context(), name); err != nil {
			writeError(w, http.StatusConflict, apiBadRequest, err.Error())
			return
		}
		writeJSON(w, http.StatusOK, []byte("{}"))
	}
}
