package console

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/bus"
)

// listedChannels bounds the channels of one answer; those with the most subscribers come first.
const listedChannels = 200

// serveChannels lists the channels of all nodes whose name contains the query's "match", those with
// the most subscribers first.
func (s *Door) serveChannels(w http.ResponseWriter, r *http.Request) {
	list, err := s.server.FindChannels(r.Context(), r.URL.Query().Get("match"), listedChannels)
	if err != nil {
		answer.WriteError(w, http.StatusInternalServerError, answer.ErrInternal.Code, answer.FailureOf(s.hub.Logger(),
			"console", err).Message)
		return
	}
	body, err := json.Marshal(list)
	if err != nil {
		panic("push: names of channels are always JSON: " + err.Error())
	}
	answer.WriteJSON(w, http.StatusOK, body)
}

// shownConnections bounds the connections of one answer.
const shownConnections = 50

// shownHistory is how many of a channel's latest publications the console shows.
const shownHistory = 20

// serveChannel describes one channel: its rules, its last publications and its present clients,
// encoded as in the API. What its namespace does not keep is null.
func (s *Door) serveChannel(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	if s.hub.CheckChannel(name) != nil {
		answer.WriteError(w, http.StatusBadRequest, answer.ErrBadRequest.Code, s.hub.ChannelRule("the channel", name))
		return
	}
	rules := s.hub.Rules(name)
	shown := struct {
		Namespace string             `json:"namespace"`
		Recovery  bool               `json:"recovery"`
		Publish   policy.PublishRule `json:"publish"`
		Slow      policy.SlowPolicy  `json:"slow"`
		History   *bus.History       `json:"history"`
		Presence  *bus.Presence      `json:"presence"`
	}{Namespace: rules.Name, Recovery: rules.Recovery, Publish: rules.Publish, Slow: rules.Slow}
	h, err := s.server.History(r.Context(), name, bus.Query{Limit: shownHistory, Reverse: true})
	if err == nil {
		shown.History = &h
	}
	there, absent := s.server.Presence(r.Context(), name)
	if absent == nil {
		shown.Presence = &there
	}
	for _, err := range []error{err, absent} {
		if err != nil && !errors.Is(err, answer.ErrNotAvailable) && !errors.Is(err, answer.ErrLimitExceeded) {
			answer.WriteError(w, http.StatusInternalServerError, answer.ErrInternal.Code,
				answer.FailureOf(s.hub.Logger(),
					"console", err).Message)
			return
		}
	}
	body, err := json.Marshal(shown)
	if err != nil {
		panic("push: the description of a channel is always JSON: " + err.Error())
	}
	answer.WriteJSON(w, http.StatusOK, body)
}

// serveConnections lists the connections of all nodes of which the query's "match" is a part of the
// user, or the beginning of the id.
func (s *Door) serveConnections(w http.ResponseWriter, r *http.Request) {
	list, err := s.server.FindConnections(r.Context(), r.URL.Query().Get("match"), shownConnections)
	if err != nil {
		answer.WriteError(w, http.StatusInternalServerError, answer.ErrInternal.Code, answer.FailureOf(s.hub.Logger(),
			"console", err).Message)
		return
	}
	writeShown(w, list)
}

// serveCluster sends how this node sees the cluster, and what each node says of itself. A server on
// its own has no links and no logs.
func (s *Door) serveCluster(w http.ResponseWriter, r *http.Request) {
	state := s.hub.Bus().State()
	shown := struct {
		Problem string          `json:"problem"`
		Links   []bus.NodeState `json:"links"`
		Logs    []bus.LogState  `json:"logs"`
		Nodes   []push.NodeView `json:"nodes"`
	}{state.Problem, state.Nodes, state.Logs, []push.NodeView{}}
	var err error
	if shown.Nodes, err = s.server.ViewNodes(r.Context()); err != nil {
		answer.WriteError(w, http.StatusInternalServerError, answer.ErrInternal.Code, answer.FailureOf(s.hub.Logger(),
			"console", err).Message)
		return
	}
	body, err := json.Marshal(shown)
	if err != nil {
		panic("push: the state of a cluster is always JSON: " + err.Error())
	}
	answer.WriteJSON(w, http.StatusOK, body)
}

// serveRemove makes the cluster forget the node that is named in the query.
func (s *Door) serveRemove(w http.ResponseWriter, r *http.Request) {
	if !answer.AllowMethod(w, r, http.MethodPost) {
		return
	}
	name := r.URL.Query().Get("node")
	switch {
	case s.server.Config().RemoveNode == nil:
		answer.WriteError(w, http.StatusNotFound, answer.ErrMethodNotFound.Code,
			"this server is no part of a cluster that it runs itself")
	case name == "":
		answer.WriteError(w, http.StatusBadRequest, answer.ErrBadRequest.Code, "node is missing")
	default:
		if err := s.server.Config().RemoveNode(r.Context(), name); err != nil {
			answer.WriteError(w, http.StatusConflict, answer.ErrBadRequest.Code, err.Error())
			return
		}
		answer.WriteJSON(w, http.StatusOK, []byte("{}"))
	}
}

// This file holds what the console shows besides figures: rules, tokens and refusals.

// A shownNamespace is the rules of a namespace, by the names of the options.
type shownNamespace struct {
	Name  string      `json:"name"`
	Rules []shownRule `json:"rules"`
}

// A shownRule is a rule that is not at its zero value.
type shownRule struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// shownRules lists the rules of the namespace.
func shownRules(ns *policy.Namespace) shownNamespace {
	list := []shownRule{}
	add := func(set bool, name, value string) {
		if set {
			list = append(list, shownRule{name, value})
		}
	}
	add(true, "publish", string(ns.Publish))
	add(ns.SubscribeToken, "subscribe-token", "")
	add(ns.UserLimited, "user-limited", "")
	add(ns.Personal, "personal", "")
	add(ns.ChannelRegex != "", "channel-regex", ns.ChannelRegex)
	add(ns.KnownOnly, "known-only", "")
	add(ns.SubscribeHook, "subscribe-proxy", "")
	add(ns.PublishHook, "publish-proxy", "")
	add(ns.SubRefreshHook, "sub-refresh-proxy", "")
	add(ns.HistorySize > 0, "history-size", strconv.Itoa(ns.HistorySize))
	add(ns.HistorySize > 0, "history-age", ns.HistoryAge.String())
	add(ns.Recovery, "recovery", "")
	add(ns.Presence, "presence", "")
	add(ns.JoinLeave, "join-leave", "")
	add(ns.PushJoinLeave, "push-join-leave", "")
	add(true, "slow", string(ns.Slow))
	add(ns.Slow == policy.SlowDropOldest, "slow-queue", strconv.Itoa(ns.SlowQueue))
	return shownNamespace{ns.Name, list}
}

// serveNamespaces lists the namespaces with their rules.
func (s *Door) serveNamespaces(w http.ResponseWriter, _ *http.Request) {
	list := []shownNamespace{}
	for _, ns := range s.server.Namespaces() {
		list = append(list, shownRules(ns))
	}
	writeShown(w, map[string]any{"namespaces": list, "deny_client_publish": s.hub.Table().DenyClientPublish})
}

const (
	// tokenBytes bounds a request of the console about a token.
	tokenBytes = 64 << 10
	// explainedChannels bounds the channels of such a request.
	explainedChannels = 20
)

// An explainedToken is a TokenExplanation as the console shows it.
type explainedToken struct {
	Error    string          `json:"error"` // why the server refuses the token; empty: it does not
	User     string          `json:"user"`
	Channel  string          `json:"channel"`
	Ends     *time.Time      `json:"ends"` // null: never
	Header   json.RawMessage `json:"header"`
	Claims   []shownClaim    `json:"claims"`
	Channels []shownChannel  `json:"channels"`
}

type shownClaim struct {
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"`
	Does  string          `json:"does"`
}

type shownChannel struct {
	Channel   string `json:"channel"`
	Subscribe string `json:"subscribe"`
	Publish   string `json:"publish"`
}

// serveToken explains the token in the body {"token": "…", "channels": ["…", …]}. Nothing of it is
// logged.
func (s *Door) serveToken(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Token    string   `json:"token"`
		Channels []string `json:"channels"`
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, tokenBytes))
	if err != nil {
		answer.RefuseBody(w, err)
		return
	}
	err = json.Unmarshal(body, &asked)
	if err == nil && len(asked.Channels) > explainedChannels {
		err = errors.New("more than " + strconv.Itoa(explainedChannels) + " channels")
	}
	if err != nil {
		answer.WriteError(w, http.StatusBadRequest, answer.ErrBadRequest.Code,
			`the body is not {"token": "…", "channels": ["…"]}: `+err.Error())
		return
	}
	e, refused := s.server.ExplainToken(asked.Token, asked.Channels)
	shown := explainedToken{User: e.User, Channel: e.Channel, Header: e.Header, Claims: []shownClaim{},
		Channels: []shownChannel{}}
	if refused != nil {
		shown.Error = strings.TrimPrefix(hub.OneLine(refused), "push: ")
	} else if !e.Ends.IsZero() {
		shown.Ends = &e.Ends
	}
	for _, note := range e.Notes {
		shown.Claims = append(shown.Claims, shownClaim(note))
	}
	for _, note := range e.Channels {
		shown.Channels = append(shown.Channels, shownChannel(note))
	}
	writeShown(w, shown)
}

// serveRefusals sends the latest refusals with a number above the query's "after", and how many of
// each reason there have been.
func (s *Door) serveRefusals(w http.ResponseWriter, r *http.Request) {
	after, _ := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64) // anything else asks for all of them
	counts, list, last := s.server.Refusals(after)
	writeShown(w, map[string]any{"counts": counts, "refusals": list, "last": last})
}
