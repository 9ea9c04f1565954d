package push

import (
	"encoding/json"
	"net/http"

	"github.com/myriad-go/myriad/server/push/bus"
)

// serveCluster sends how this node sees the cluster, and what each node says of itself. A server on
// its own has no links and no logs.
func (s *consoleDoor) serveCluster(w http.ResponseWriter, r *http.Request) {
	state := s.Bus().State()
	shown := struct {
		Problem string          `json:"problem"`
		Links   []bus.NodeState `json:"links"`
		Logs    []bus.LogState  `json:"logs"`
		Nodes   []NodeView      `json:"nodes"`
	}{state.Problem, state.Nodes, state.Logs, []NodeView{}}
	var err error
	if shown.Nodes, err = s.ViewNodes(r.Context()); err != nil {
		WriteError(w, http.StatusInternalServerError, ErrInternal.Code, s.Explain("console", err).Message)
		return
	}
	body, err := json.Marshal(shown)
	if err != nil {
		panic("push: the state of a cluster is always JSON: " + err.Error())
	}
	WriteJSON(w, http.StatusOK, body)
}

// serveRemove makes the cluster forget the node that is named in the query.
func (s *consoleDoor) serveRemove(w http.ResponseWriter, r *http.Request) {
	if !AllowMethod(w, r, http.MethodPost) {
		return
	}
	name := r.URL.Query().Get("node")
	switch {
	case s.NodeRemover() == nil:
		WriteError(w, http.StatusNotFound, ErrMethodNotFound.Code,
			"this server is no part of a cluster that it runs itself")
	case name == "":
		WriteError(w, http.StatusBadRequest, ErrBadRequest.Code, "node is missing")
	default:
		if err := s.NodeRemover()(r.Context(), name); err != nil {
			WriteError(w, http.StatusConflict, ErrBadRequest.Code, err.Error())
			return
		}
		WriteJSON(w, http.StatusOK, []byte("{}"))
	}
}
