package push

import (
	"encoding/json"
	"errors"
	"net/http"
)

// listedChannels bounds the channels of one answer; those with the most subscribers come first.
const listedChannels = 200

// serveChannels lists the channels of all nodes whose name contains the query's "match", those with
// the most subscribers first.
func (s *consoleDoor) serveChannels(w http.ResponseWriter, r *http.Request) {
	list, err := s.FindChannels(r.Context(), r.URL.Query().Get("match"), listedChannels)
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

// shownConnections bounds the connections of one answer.
const shownConnections = 50

// shownHistory is how many of a channel's latest publications the console shows.
const shownHistory = 20

// serveChannel describes one channel: its rules, its last publications and its present clients,
// encoded as in the API. What its namespace does not keep is null.
func (s *consoleDoor) serveChannel(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	if s.CheckChannel(name) != nil {
		WriteError(w, http.StatusBadRequest, ErrBadRequest.Code, s.ChannelRule("the channel", name))
		return
	}
	rules := s.Rules(name)
	shown := struct {
		Namespace string          `json:"namespace"`
		Recovery  bool            `json:"recovery"`
		Publish   PublishRule     `json:"publish"`
		Slow      SlowPolicy      `json:"slow"`
		History   json.RawMessage `json:"history"`
		Presence  json.RawMessage `json:"presence"`
	}{Namespace: rules.Name, Recovery: rules.Recovery, Publish: rules.Publish, Slow: rules.Slow}
	h, err := s.History(r.Context(), name, Query{Limit: shownHistory, Reverse: true})
	if err == nil {
		shown.History = HistoryResult(h)
	}
	there, absent := s.Presence(r.Context(), name)
	if absent == nil {
		shown.Presence = PresenceResult(there.Clients)
	}
	for _, err := range []error{err, absent} {
		if err != nil && !errors.Is(err, ErrNotAvailable) && !errors.Is(err, ErrLimitExceeded) {
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
func (s *consoleDoor) serveConnections(w http.ResponseWriter, r *http.Request) {
	list, err := s.FindConnections(r.Context(), r.URL.Query().Get("match"), shownConnections)
	if err != nil {
		WriteError(w, http.StatusInternalServerError, ErrInternal.Code, s.Explain("console", err).Message)
		return
	}
	writeShown(w, list)
}
