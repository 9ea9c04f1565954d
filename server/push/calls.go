package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/strict"
)

// This file holds what a program does that embeds the server. The HTTP and gRPC APIs are these
// methods with another encoding (package api), so that they cannot differ.
//
// Any goroutine may call them, also several at the same time. In a cluster they act on all nodes,
// and wait at most 15 s for the others; nodes that do not answer are named in the log, and what
// they have is left out. An Error says what is wrong with a call, with the codes of the HTTP API:
// 106 where a limit is exceeded, 107 for an argument that is not valid, 108 for a channel whose
// namespace lacks what the call needs, 112 for a position of another epoch. Other errors come from
// the Bus, or are ctx's.

func badCall(message string) error { return Error{Code: ErrBadRequest.Code, Message: message} }

func overLimit(message string) error { return Error{Code: ErrLimitExceeded.Code, Message: message} }

// PublishOptions are what may be said of a publication besides its data.
type PublishOptions struct {
	// Kind is what the data is: JSON (the default), Text in UTF-8, or Binary. Clients that speak
	// JSON get text as a string, and bytes as a string in base64.
	Kind Kind
	// Tags are for subscribers, which may filter by them. They count for Limits.Publication.
	Tags map[string]string
	// SkipHistory keeps the publication out of the channel's history.
	SkipHistory bool
	// IdempotencyKey makes one publication of all calls with the same channel and key within five
	// minutes; Bus says what holds in a cluster. At most 256 bytes.
	IdempotencyKey string
	// Version drops the publication unless it is newer than the channel's latest one. It needs a
	// namespace with a history.
	Version *Version

	// Bytes says that the data came as bytes. They are JSON or Binary, whatever Kind says, and are
	// sent as they are.
	Bytes bool
}

// Publish sends data, any JSON, to every subscriber of the channel, as POST /api/publish does. It
// never waits for a subscriber: when it returns nil, the Bus has accepted the publication, and it
// is queued for the subscribers of this node. Any goroutine may call it. It returns an error for an
// invalid channel or invalid data, and while the server shuts down.
func (s *Server) Publish(ctx context.Context, channel string, data []byte) error {
	_, err := s.PublishWith(ctx, channel, data, PublishOptions{})
	return err
}

// PublishWith is Publish with options. It returns the publication's position in the channel's
// history, which is zero without one. If the options made it of no effect, as the IdempotencyKey
// or the Version of an earlier publication does, it returns that one's position. After ErrUncertain
// call it again with the same IdempotencyKey.
func (s *Server) PublishWith(ctx context.Context, channel string, data []byte, o PublishOptions) (Position, error) {
	if channel == "" {
		return Position{}, badCall("channel is missing")
	}
	if err := s.checkPublication(data, &o); err != nil {
		return Position{}, err
	}
	return s.publishChecked(ctx, channel, data, &o)
}

// A Published is the outcome of a Broadcast for one channel.
type Published struct {
	Position
	Err error // as PublishWith returns it
}

// MarshalJSON returns p as the API's broadcast has it: an object with result or error. An Err that
// is no Error is ErrInternal there.
func (p Published) MarshalJSON() ([]byte, error) {
	type result struct {
		Result Position `json:"result"`
	}
	type failure struct {
		Error Error `json:"error"`
	}
	if p.Err == nil {
		return json.Marshal(result{p.Position})
	}
	told := ErrInternal
	errors.As(p.Err, &told)
	return json.Marshal(failure{told})
}

// Broadcast is PublishWith for several channels, at most Limits.Broadcast. It publishes to one
// after the other, and returns the outcomes in their order. Its own error says that it has
// published to none.
func (s *Server) Broadcast(ctx context.Context, channels []string, data []byte, o PublishOptions) ([]Published, error) {
	switch most := s.config.Limits.Broadcast; {
	case len(channels) == 0:
		return nil, badCall("channels is missing")
	case len(channels) > most:
		return nil, overLimit(fmt.Sprintf("%d channels; one request may name at most %d", len(channels), most))
	}
	if err := s.checkPublication(data, &o); err != nil {
		return nil, err
	}
	if err := s.hub.MayPublish(); err != nil {
		return nil, err
	}
	all := make([]Published, len(channels))
	for i, channel := range channels {
		all[i].Position, all[i].Err = s.publishChecked(ctx, channel, data, &o)
	}
	return all, nil
}

// checkPublication returns an error for what is missing, or is too large for any channel.
func (s *Server) checkPublication(data []byte, o *PublishOptions) error {
	limit, size := s.config.Limits.Publication, (&Publication{Data: data, Tags: o.Tags}).Size()
	if size > limit && o.Kind == JSON && !o.Bytes {
		size += compactSize(data) - len(data)
	}
	switch {
	case len(data) == 0 && (o.Kind == JSON || o.Bytes):
		return badCall("data is missing")
	case o.Kind > Binary:
		return badCall(fmt.Sprintf("the kind of data is %d: use JSON, Text or Binary", o.Kind))
	case o.Version != nil && o.Version.Number == 0:
		return badCall("version_epoch without version: give it a version of 1 or more")
	case o.Version != nil && o.SkipHistory:
		return badCall("version with skip_history: the history is what a version is compared with")
	case size <= limit:
		return nil
	case len(o.Tags) == 0:
		return overLimit(fmt.Sprintf("data is %d bytes; the limit is %d", size, limit))
	}
	return overLimit(fmt.Sprintf("data and tags are %d bytes together; the limit is %d", size, limit))
}

// publishChecked publishes to one channel.
func (s *Server) publishChecked(ctx context.Context, channel string, data []byte, o *PublishOptions) (Position, error) {
	p := Publication{ID: o.IdempotencyKey, Data: data, Kind: o.Kind, Tags: o.Tags, Version: o.Version}
	if o.Bytes {
		p.Kind = KindOf(data)
	}
	at, err := s.hub.Publish(ctx, channel, p, o.SkipHistory, o.Bytes)
	switch {
	case errors.Is(err, bus.ErrOutdated):
		return at, nil // the channel has it already, or something newer
	case errors.Is(err, bus.ErrNoHistory):
		return at, Error{Code: ErrNotAvailable.Code, Message: "version needs a channel whose namespace has a history"}
	case errors.Is(err, hub.ErrBadVersion):
		return at, badCall(fmt.Sprintf("version_epoch has more than %d bytes", hub.MaxID))
	case errors.Is(err, policy.ErrBadChannel):
		return at, s.checkChannel(channel)
	case errors.Is(err, hub.ErrBadID):
		return at, badCall(fmt.Sprintf("idempotency_key has more than %d bytes", hub.MaxID))
	case errors.Is(err, hub.ErrBadData) && p.Kind == JSON && !json.Valid(data):
		return at, badCall("data is not JSON")
	case errors.Is(err, hub.ErrBadData):
		return at, badCall("data is not UTF-8, as JSON must be")
	}
	return at, err
}

// History reads the channel's history. One answer holds at most Limits.Recovered publications.
func (s *Server) History(ctx context.Context, channel string, q Query) (History, error) {
	if err := s.mustHave(channel, keepsHistory); err != nil {
		return History{}, err
	}
	return s.hub.History(ctx, channel, q)
}

// RemoveHistory drops the publications that the channel keeps. Its offsets go on.
func (s *Server) RemoveHistory(ctx context.Context, channel string) error {
	if err := s.mustHave(channel, keepsHistory); err != nil {
		return err
	}
	ctx, cancel := s.hub.BusDeadline(ctx)
	defer cancel()
	return s.config.Bus.Forget(ctx, s.hub.Topic(channel))
}

// Presence returns the clients of a channel whose namespace has Presence. It fails with 106 if
// there are more than Limits.Present.
func (s *Server) Presence(ctx context.Context, channel string) (Presence, error) {
	if err := s.mustHave(channel, showsPresence); err != nil {
		return Presence{}, err
	}
	return s.hub.Presence(ctx, channel, false)
}

// PresenceStats returns the numbers of Presence without its clients, however many there are.
func (s *Server) PresenceStats(ctx context.Context, channel string) (Presence, error) {
	if err := s.mustHave(channel, showsPresence); err != nil {
		return Presence{}, err
	}
	return s.hub.Presence(ctx, channel, true)
}

// mostChannels bounds the channels of one answer; those with the most subscribers come first.
const mostChannels = 1000

// Channels lists channels that have subscribers, those with the most first, at most 1,000. pattern
// is a glob, as docs/guides/api.md has it; empty: all of them.
func (s *Server) Channels(ctx context.Context, pattern string) ([]ChannelInfo, error) {
	if _, err := policy.NewGlob(pattern); err != nil {
		return nil, badCall(err.Error())
	}
	list, err := s.cluster.allChannels(ctx, operation{Pattern: pattern, Most: mostChannels})
	return list.Channels, err
}

// Nodes describes the nodes of the cluster, in the order of their names; a server that is alone
// describes itself.
func (s *Server) Nodes(ctx context.Context) ([]NodeInfo, error) {
	list, err := s.nodes(ctx)
	all := make([]NodeInfo, 0, len(list))
	for _, n := range list {
		all = append(all, NodeInfo{n.ID, n.Name, n.Version, n.Clients, n.Users, n.Subscriptions, n.Channels,
			time.Duration(n.Uptime) * time.Second})
	}
	return all, err
}

func (s *Server) nodes(ctx context.Context) ([]nodeInfo, error) {
	list := []nodeInfo{}
	err := askAll(ctx, s.cluster, "info", operation{}, func(n nodeInfo) { list = append(list, n) })
	slices.SortFunc(list, func(a, b nodeInfo) int { return strings.Compare(a.Name+a.ID, b.Name+b.ID) })
	return list, err
}

// A NodeInfo is what a node says of itself.
type NodeInfo struct {
	ID, Name, Version string
	Clients           int64 // connections of clients
	Users             int   // those without a name count as one
	Subscriptions     int
	Channels          int           // that have subscribers
	Uptime            time.Duration // in whole seconds
}

// MarshalJSON returns n as the API's info has it.
func (n NodeInfo) MarshalJSON() ([]byte, error) {
	return json.Marshal(nodeInfo{clusterNode{n.ID, n.Name, n.Version, n.Clients, n.Channels,
		int64(n.Uptime / time.Second)}, n.Users, n.Subscriptions})
}

// Connections lists the connections of a user, or all of them if user is empty, in the order of
// users and clients. It fails with 106 if there are more than 1,000.
func (s *Server) Connections(ctx context.Context, user string) ([]ConnectionInfo, error) {
	list, err := s.cluster.allConnections(ctx, operation{User: user, Most: mostConnections})
	if err != nil {
		return nil, err
	}
	if list.Total > len(list.Connections) {
		return nil, overLimit(fmt.Sprintf("%d connections, of which an answer holds %d: name a user", list.Total,
			len(list.Connections)))
	}
	return list.Connections, nil
}

// mustHave returns an error for an invalid name, and for a channel whose namespace lacks the
// feature that has checks.
func (s *Server) mustHave(name string, has func(*Namespace) bool) error {
	err := s.checkChannel(name)
	if err == nil && !has(s.hub.Rules(name)) {
		return ErrNotAvailable
	}
	return err
}

// checkChannel returns the API's error for a name that no channel may have.
func (s *Server) checkChannel(name string) error {
	switch err := s.hub.CheckChannel(name); {
	case name == "":
		return badCall("channel is missing")
	case errors.Is(err, policy.ErrBadChannel):
		return badCall(s.hub.ChannelRule("the channel", name))
	default:
		return err
	}
}

func keepsHistory(ns *Namespace) bool  { return ns.HistorySize > 0 }
func showsPresence(ns *Namespace) bool { return ns.Presence }

// A Target selects connections: those of a user, the one with that client id, the one with that
// session id. If several are given, all must fit; one must be.
type Target struct {
	User, Client, Session string
	Except                []string // ids of clients that are left out
}

// operation returns the part of an operation that selects sessions.
func (t *Target) operation() (operation, error) {
	if t.User == "" && t.Client == "" && t.Session == "" {
		return operation{}, badCall("user, client or session is missing")
	}
	return operation{Client: t.Client, Session: t.Session, User: t.User, Whitelist: t.Except}, nil
}

// SubscribeOptions are what may be said of subscriptions that the server makes.
type SubscribeOptions struct {
	Since    *Position // they begin with what was published after it; nil: with what comes
	Data     []byte    // for the clients, with the news of their subscription
	Info     []byte    // JSON that others see in presence, joins and leaves
	ExpireAt int64     // when they end, in seconds since 1970; 0: never. It needs tokens or Hooks.Connect
	Override Override
}

// Subscribe subscribes connections to a channel, whatever they may do themselves, and tells them.
// It returns how many are subscribed by this call. Those that were before are left out, and so are
// streams of /events, whose channels are in their address.
func (s *Server) Subscribe(ctx context.Context, t Target, channel string, o SubscribeOptions) (int, error) {
	if err := s.checkChannel(channel); err != nil {
		return 0, err
	}
	op, err := t.operation()
	if err != nil {
		return 0, err
	}
	info, size := strict.Compact(o.Info), len(o.Data)
	if json.Valid(o.Data) {
		size = compactSize(o.Data)
	}
	switch now := s.config.Clock.Now().Unix(); {
	case size+len(info) > s.config.Limits.Publication:
		return 0, overLimit("data or info is too large")
	case o.ExpireAt != 0 && !s.config.Authenticates():
		return 0, badCall("expire_at needs clients with tokens")
	case o.ExpireAt != 0 && (o.ExpireAt <= now || o.ExpireAt > now+maxExpiry):
		return 0, badCall("expire_at is not in the next hundred years")
	case o.Info != nil && !json.Valid(o.Info):
		return 0, badCall("info is not JSON")
	}
	if err := checkOverride(&o.Override, s.hub.Rules(channel)); err != nil {
		return 0, err
	}
	op.Channel, op.Since, op.ExpireAt, op.Data, op.Info = channel, o.Since, o.ExpireAt, o.Data, info
	if o.Override != (Override{}) {
		op.Override = &o.Override
	}
	if err := s.hub.BeginChange(ctx); err != nil {
		return 0, err
	}
	defer s.hub.EndChange()
	var sum subscribed
	err = askAll(ctx, s.cluster, "subscribe", op, func(one subscribed) {
		sum.Count += one.Count
		if one.Failed.Code != 0 {
			sum.Failed = one.Failed
		}
	})
	switch {
	case err != nil:
		return 0, err
	case sum.Failed.Code != 0:
		return 0, sum.Failed
	}
	return sum.Count, nil
}

// checkOverride returns an error for a rule that the namespace cannot follow for some of its
// subscribers.
func checkOverride(o *Override, rules *Namespace) error {
	set := func(rule *bool) bool { return rule != nil && *rule }
	switch {
	case rules.Recovery:
		return nil
	case set(o.ForceRecovery):
		return badCall("override.force_recovery needs a namespace with the rule recovery")
	case set(o.ForcePositioning):
		return badCall("override.force_positioning needs a namespace with the rule recovery")
	}
	return nil
}

// maxExpiry bounds ExpireAt, in seconds from now: nanoseconds since 1970 must not overflow.
const maxExpiry = 100 * 365 * 24 * 3600

// Unsubscribe ends subscriptions of connections, and returns how many. Client libraries do not
// subscribe again.
func (s *Server) Unsubscribe(ctx context.Context, t Target, channel string) (int, error) {
	if channel == "" {
		return 0, badCall("channel is missing")
	}
	op, err := t.operation()
	if err != nil {
		return 0, err
	}
	op.Channel = channel
	return s.change(ctx, "unsubscribe", op)
}

// Disconnect closes connections, and returns how many. The zero Disconnect is 3503 "force
// disconnect", after which clients do not reconnect; any other has a code of 3000 to 4999 and a
// reason of at most 123 bytes.
func (s *Server) Disconnect(ctx context.Context, t Target, why Disconnect) (int, error) {
	op, err := t.operation()
	if err != nil {
		return 0, err
	}
	if why == (Disconnect{}) {
		why = answer.DisconnectForced
	}
	if !why.IsValid() {
		return 0, badCall(answer.BadDisconnect)
	}
	op.Code, op.Reason = why.Code, why.Reason
	return s.change(ctx, "disconnect", op)
}

// RefreshOptions say how connections go on.
type RefreshOptions struct {
	ExpireAt int64 // when they expire, in seconds since 1970; 0: never
	Expired  bool  // they expire at once, whatever ExpireAt says
	// Info is JSON that others see of the clients from then on. nil: it stays. Clients whom neither
	// a token nor Hooks.Connect has named have none.
	Info []byte
}

// Refresh changes when connections expire, tells their clients, and returns how many there are.
func (s *Server) Refresh(ctx context.Context, t Target, o RefreshOptions) (int, error) {
	op, err := t.operation()
	switch {
	case err != nil:
		return 0, err
	case o.ExpireAt < 0 || o.ExpireAt > s.config.Clock.Now().Unix()+maxExpiry:
		return 0, badCall("expire_at is not in the next hundred years")
	case compactSize(o.Info) > s.config.Limits.Publication:
		return 0, overLimit("info is too large")
	case o.Info != nil && !json.Valid(o.Info):
		return 0, badCall("info is not JSON")
	}
	op.ExpireAt, op.Never = o.ExpireAt, o.ExpireAt == 0 && !o.Expired
	if o.Expired {
		op.ExpireAt = 0 // at once
	}
	op.Info = strict.Compact(o.Info)
	return s.change(ctx, "refresh", op)
}

// change asks all nodes to change sessions, and returns how many. It waits while the server is
// frozen.
func (s *Server) change(ctx context.Context, kind string, op operation) (count int, err error) {
	if err := s.hub.BeginChange(ctx); err != nil {
		return 0, err
	}
	defer s.hub.EndChange()
	return s.cluster.countAll(ctx, kind, op)
}

// compactSize returns how many bytes the valid JSON has without spaces between its tokens.
func compactSize(text []byte) (n int) {
	quoted, escaped := false, false
	for _, c := range text {
		switch {
		case !quoted && (c == ' ' || c == '\t' || c == '\r' || c == '\n'):
			continue
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		}
		n++
	}
	return n
}
