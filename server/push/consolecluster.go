package push

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/myriad-go/myriad/server/push/bus"
)

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
		WriteError(w, http.StatusInternalServerError, ErrInternal.Code, s.Explain("console", err).Message)
		return
	}
	slices.SortFunc(shown.Nodes, func(a, b nodeView) int { return cmp.Compare(a.Name+a.ID, b.Name+b.ID) })
	body, err := json.Marshal(shown)
	if err != nil {
		panic("push: the state of a cluster is always JSON: " + err.Error())
	}
	WriteJSON(w, http.StatusOK, body)
}

// serveRemove makes the cluster forget the node that is named in the query.
func (s *Server) serveRemove(w http.ResponseWriter, r *http.Request) {
	if !AllowMethod(w, r, http.MethodPost) {
		return
	}
	name := r.URL.Query().Get("node")
	switch {
	case s.removeNode == nil:
		WriteError(w, http.StatusNotFound, ErrMethodNotFound.Code,
			"this server is no part of a cluster that it runs itself")
	case name == "":
		WriteError(w, http.StatusBadRequest, ErrBadRequest.Code, "node is missing")
	default:
		if err := s.removeNode(r.Context(), name); err != nil {
			WriteError(w, http.StatusConflict, ErrBadRequest.Code, err.Error())
			return
		}
		WriteJSON(w, http.StatusOK, []byte("{}"))
	}
}
