package push

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
)

// listedChannels bounds the channels of one answer; those with the most subscribers come first.
const listedChannels = 200

// serveChannels lists the channels of all nodes whose name contains the query's "match", those with
// the most subscribers first.
func (s *Server) serveChannels(w http.ResponseWriter, r *http.Request) {
	list, err := s.node.allChannels(r.Context(), operation{Pattern: r.URL.Query().Get("match"), Contains: true,
		Most: listedChannels})
	if err != nil {
		WriteError(w, http.StatusInternalServerError, ErrInternal.Code, s.Explain("console", err).Message)
		return
	}
	body, err := json.Marshal(list)
	if err != nil {
		panic("push: names of channels are always JSON: " + err.Error())
	}
	WriteJSON(w, http.StatusOK, body)
}

// shownHistory is how many of a channel's latest publications the console shows.
const shownHistory = 20

// serveChannel describes one channel: its rules, its last publications and its present clients,
// encoded as in the API. What its namespace does not keep is null.
func (s *Server) serveChannel(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	if s.node.checkChannel(name) != nil {
		WriteError(w, http.StatusBadRequest, ErrBadRequest.Code, s.node.channelRule("the channel", name))
		return
	}
	rules := s.node.rules.of(name)
	shown := struct {
		Namespace string          `json:"namespace"`
		Recovery  bool            `json:"recovery"`
		Publish   PublishRule     `json:"publish"`
		Slow      SlowPolicy      `json:"slow"`
		History   json.RawMessage `json:"history"`
		Presence  json.RawMessage `json:"presence"`
	}{Namespace: rules.Name, Recovery: rules.Recovery, Publish: rules.Publish, Slow: rules.Slow}
	for _, part := range []struct {
		to     *json.RawMessage
		method func(*Server, context.Context, *apiRequest) ([]byte, error)
	}{{&shown.History, (*Server).apiHistory}, {&shown.Presence, (*Server).apiPresence}} {
		result, err := part.method(s, r.Context(), &apiRequest{Channel: name, Limit: shownHistory, Reverse: true})
		switch {
		case err == nil:
			*part.to = result
		case !errors.Is(err, ErrNotAvailable) && !errors.Is(err, ErrLimitExceeded):
			WriteError(w, http.StatusInternalServerError, ErrInternal.Code, s.Explain("console", err).Message)
			return
		}
	}
	body, err := json.Marshal(shown)
	if err != nil {
		panic("push: the description of a channel is always JSON: " + err.Error())
	}
	WriteJSON(w, http.StatusOK, body)
}

// serveConnections lists the connections of all nodes of which the query's "match" is a part of the
// user, or the beginning of the id.
func (s *Server) serveConnections(w http.ResponseWriter, r *http.Request) {
	list, err := s.node.allConnections(r.Context(), operation{User: r.URL.Query().Get("match"), Contains: true,
		Most: shownConnections})
	if err != nil {
		WriteError(w, http.StatusInternalServerError, ErrInternal.Code, s.Explain("console", err).Message)
		return
	}
	writeShown(w, list)
}
