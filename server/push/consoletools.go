package push

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

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
func shownRules(ns *Namespace) shownNamespace {
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
	add(ns.Slow == SlowDropOldest, "slow-queue", strconv.Itoa(ns.SlowQueue))
	return shownNamespace{ns.Name, list}
}

// serveNamespaces lists the namespaces with their rules.
func (s *consoleDoor) serveNamespaces(w http.ResponseWriter, _ *http.Request) {
	list := []shownNamespace{}
	for _, ns := range s.Namespaces() {
		list = append(list, shownRules(ns))
	}
	writeShown(w, map[string]any{"namespaces": list, "deny_client_publish": s.DeniesClientPublish()})
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
func (s *consoleDoor) serveToken(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Token    string   `json:"token"`
		Channels []string `json:"channels"`
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, tokenBytes))
	if err != nil {
		RefuseBody(w, err)
		return
	}
	err = json.Unmarshal(body, &asked)
	if err == nil && len(asked.Channels) > explainedChannels {
		err = errors.New("more than " + strconv.Itoa(explainedChannels) + " channels")
	}
	if err != nil {
		WriteError(w, http.StatusBadRequest, ErrBadRequest.Code,
			`the body is not {"token": "…", "channels": ["…"]}: `+err.Error())
		return
	}
	e, refused := s.ExplainToken(asked.Token, asked.Channels)
	shown := explainedToken{User: e.User, Channel: e.Channel, Header: e.Header, Claims: []shownClaim{},
		Channels: []shownChannel{}}
	if refused != nil {
		shown.Error = strings.TrimPrefix(OneLine(refused), "push: ")
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
func (s *consoleDoor) serveRefusals(w http.ResponseWriter, r *http.Request) {
	after, _ := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64) // anything else asks for all of them
	counts, list, last := s.Refusals(after)
	writeShown(w, map[string]any{"counts": counts, "refusals": list, "last": last})
}
