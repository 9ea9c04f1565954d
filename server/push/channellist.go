package push

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// listedChannels bounds the channels of one answer; those with the most subscribers come first.
const listedChannels = 200

type channelList struct {
	Total    int           `json:"total"` // that match, listed or not
	Channels []ChannelInfo `json:"channels"`
}

// A ChannelInfo is a channel that has subscribers.
type ChannelInfo struct {
	Name        string `json:"name"`
	Subscribers int    `json:"subscribers"` // on all nodes
}

// serveChannels lists the channels of all nodes whose name contains the query's "match", those with
// the most subscribers first.
func (s *Server) serveChannels(w http.ResponseWriter, r *http.Request) {
	list, err := s.node.allChannels(r.Context(), operation{Pattern: r.URL.Query().Get("match"), Contains: true,
		Most: listedChannels})
	if err != nil {
		writeError(w, http.StatusInternalServerError, apiInternal, s.explain("console", err).message)
		return
	}
	body, err := json.Marshal(list)
	if err != nil {
		panic("push: names of channels are always JSON: " + err.Error())
	}
	writeJSON(w, http.StatusOK, body)
}

// shownHistory is how many of a channel's latest publications the console shows.
const shownHistory = 20

// serveChannel describes one channel: its rules, its last publications and its present clients,
// encoded as in the API. What its namespace does not keep is null.
func (s *Server) serveChannel(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	if s.node.checkChannel(name) != nil {
		writeError(w, http.StatusBadRequest, apiBadRequest, s.node.channelRule("the channel", name))
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
		case !errors.Is(err, failNotAvailable) && !errors.Is(err, failLimitExceeded):
			writeError(w, http.StatusInternalServerError, apiInternal, s.explain("console", err).message)
			return
		}
	}
	body, err := json.Marshal(shown)
	if err != nil {
		panic("push: the description of a channel is always JSON: " + err.Error())
	}
	writeJSON(w, http.StatusOK, body)
}

// matching returns at most `most` channels for whose names wanted returns true. It locks one shard
// at a time; joins and leaves in that shard wait meanwhile.
func (h *hub) matching(wanted func(name string) bool, most int) channelList {
	l := channelList{Channels: []ChannelInfo{}}
	for i := range h.shards {
		h.shards[i].list(wanted, &l)
		l.trim(most)
	}
	return l
}

func (sh *shard) list(wanted func(name string) bool, l *channelList) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for name, ch := range sh.channels {
		if !wanted(name) {
			continue
		}
		size := ch.size()
		if size == 0 { // it has only watchers, or a client that is about to join
			continue
		}
		l.Total++
		l.Channels = append(l.Channels, ChannelInfo{name, size})
	}
}

// trim keeps the first `most` channels.
func (l *channelList) trim(most int) {
	slices.SortFunc(l.Channels, func(a, b ChannelInfo) int {
		return cmp.Or(cmp.Compare(b.Subscribers, a.Subscribers), strings.Compare(a.Name, b.Name))
	})
	l.Channels = l.Channels[:min(len(l.Channels), most)]
}
