package api

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/bus"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// This file holds the API's methods that publish. They return when the bus has accepted the
// publication; by then it is queued for the subscribers of this node.

func (s *Door) apiPublish(ctx context.Context, r *request) ([]byte, error) {
	data, o, err := r.publication()
	if err != nil {
		return nil, err
	}
	at, err := s.server.PublishWith(ctx, r.Channel, data, o)
	if err != nil {
		return nil, err
	}
	return appendPublished(nil, at), nil
}

// apiBroadcast publishes the same data to several channels and returns one reply for each.
func (s *Door) apiBroadcast(ctx context.Context, r *request) ([]byte, error) {
	data, o, err := r.publication()
	if err != nil {
		return nil, err
	}
	all, err := s.server.Broadcast(ctx, r.Channels, data, o)
	if err != nil {
		return nil, err
	}
	result := []byte(`{"responses":[`)
	for i, one := range all {
		if i > 0 {
			result = append(result, ',')
		}
		if one.Err == nil {
			result = append(appendPublished(append(result, `{"result":`...), one.Position), '}')
			continue
		}
		e := answer.FailureOf(s.hub.Logger(), "broadcast", one.Err)
		result = answer.AppendError(result, e.Code, e.Message)
	}
	return append(result, "]}"...), nil
}

// publication returns what a request publishes.
func (r *request) publication() (data []byte, o push.PublishOptions, err error) {
	o = push.PublishOptions{Tags: r.Tags, SkipHistory: r.SkipHistory, IdempotencyKey: r.IdempotencyKey,
		Bytes: r.Data == nil}
	if r.Version != 0 || r.VersionEpoch != "" {
		o.Version = &bus.Version{Number: r.Version, Epoch: r.VersionEpoch}
	}
	if r.Data != nil && len(r.B64Data) > 0 {
		return nil, o, badRequest("data and b64data are both given: use one")
	}
	if data = r.Data; o.Bytes {
		data = r.B64Data
	}
	return data, o, nil
}

// appendPublished appends the result of a publication: its position, if the channel has a history.
func appendPublished(dst []byte, at bus.Position) []byte {
	if at.Epoch == "" {
		return append(dst, "{}"...)
	}
	dst = strconv.AppendUint(append(dst, `{"offset":`...), at.Offset, 10)
	return append(centrifuge.AppendString(append(dst, `,"epoch":`...), at.Epoch), '}')
}

// This file holds the API's methods that query one channel.

func (s *Door) apiHistory(ctx context.Context, r *request) ([]byte, error) {
	h, err := s.server.History(ctx, r.Channel, bus.Query{Since: (*bus.Position)(r.Since), Limit: r.Limit,
		Reverse: r.Reverse})
	if err != nil {
		return nil, err
	}
	if r.asBytes {
		h.Publications = slices.Clone(h.Publications)
		for i := range h.Publications {
			h.Publications[i].Kind = bus.Binary
		}
	}
	return historyResult(h), nil
}

func (s *Door) apiHistoryRemove(ctx context.Context, r *request) ([]byte, error) {
	return []byte("{}"), s.server.RemoveHistory(ctx, r.Channel)
}

func (s *Door) apiPresence(ctx context.Context, r *request) ([]byte, error) {
	there, err := s.server.Presence(ctx, r.Channel)
	return presenceResult(there.Clients), err
}

func (s *Door) apiPresenceStats(ctx context.Context, r *request) ([]byte, error) {
	there, err := s.server.PresenceStats(ctx, r.Channel)
	return centrifuge.AppendPresenceStatsResult(nil,
		&centrifuge.PresenceStatsResult{Clients: there.Count, Users: there.Users}), err
}

// historyResult returns the result of the method history, in JSON. It is what bus.History says of
// itself in JSON, by the codec that also writes it for gRPC.
func historyResult(h bus.History) []byte {
	shown := make([]centrifuge.Publication, len(h.Publications))
	for i := range h.Publications {
		p := &h.Publications[i]
		shown[i] = centrifuge.Publication{Data: hub.JSONOf(p), Client: p.Client, User: p.User, Offset: p.Offset,
			Tags: p.Tags}
	}
	return centrifuge.AppendHistoryResult(nil, &centrifuge.HistoryResult{Publications: shown,
		Position: centrifuge.Position(h.Top)})
}

// presenceResult returns the result of the method presence, in JSON: bus.Presence without the
// numbers, which are an answer of their own here.
func presenceResult(list []bus.ClientInfo) []byte {
	shown := make([]centrifuge.ClientInfo, len(list))
	for i, info := range list {
		shown[i] = centrifuge.ClientInfo(info)
	}
	return centrifuge.AppendPresenceResult(nil, &centrifuge.PresenceResult{Clients: shown})
}

// This file holds the API's methods for operators. They act on all nodes: see cluster.go.

func (s *Door) apiChannels(ctx context.Context, r *request) ([]byte, error) {
	type shown struct {
		Clients int `json:"num_clients"`
	}
	list, err := s.server.Channels(ctx, r.Pattern)
	if err != nil {
		return nil, err
	}
	channels := make(map[string]shown, len(list))
	for _, ch := range list {
		channels[ch.Name] = shown{ch.Subscribers}
	}
	return json.Marshal(map[string]any{"channels": channels})
}

func (s *Door) apiInfo(ctx context.Context, _ *request) ([]byte, error) {
	list, err := s.server.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"nodes": list})
}

// target is the connections that a request selects.
func (r *request) target() push.Target {
	return push.Target{User: r.User, Client: r.Client, Session: r.Session, Except: r.Whitelist}
}

// numClients returns the result of a method that counts connections.
func numClients(n int, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]int{"num_clients": n})
}

func (s *Door) apiDisconnect(ctx context.Context, r *request) ([]byte, error) {
	why := answer.Disconnect{}
	if d := r.Disconnect; d != nil {
		if d.Code < 3000 || d.Code > 4999 {
			return nil, badRequest(answer.BadDisconnect)
		}
		why = answer.Disconnect{Code: uint16(d.Code), Reason: d.Reason}
	}
	return numClients(s.server.Disconnect(ctx, r.target(), why))
}

func (s *Door) apiSubscribe(ctx context.Context, r *request) ([]byte, error) {
	if r.Data != nil && len(r.B64Data) > 0 || r.Info != nil && len(r.B64Info) > 0 {
		return nil, badRequest("data and b64data, or info and b64info, are both given: use one")
	}
	o := push.SubscribeOptions{Since: (*bus.Position)(r.RecoverSince), Data: r.Data, Info: r.Info,
		ExpireAt: r.ExpireAt}
	if len(r.B64Data) > 0 {
		o.Data = r.B64Data
	}
	if len(r.B64Info) > 0 {
		o.Info = r.B64Info
	}
	o.Override = r.Override.rules()
	return numClients(s.server.Subscribe(ctx, r.target(), r.Channel, o))
}

func (s *Door) apiRefresh(ctx context.Context, r *request) ([]byte, error) {
	return numClients(s.server.Refresh(ctx, r.target(), push.RefreshOptions{ExpireAt: r.ExpireAt, Expired: r.Expired,
		Info: r.Info}))
}

func (s *Door) apiUnsubscribe(ctx context.Context, r *request) ([]byte, error) {
	return numClients(s.server.Unsubscribe(ctx, r.target(), r.Channel))
}

// apiConnections lists all connections of a user, or all.
func (s *Door) apiConnections(ctx context.Context, r *request) ([]byte, error) {
	list, err := s.server.Connections(ctx, r.User)
	if err != nil {
		return nil, err
	}
	type state struct {
		Channels map[string]struct{} `json:"channels"`
	}
	type shown struct {
		Transport string `json:"transport"`
		Protocol  string `json:"protocol"`
		User      string `json:"user"`
		State     state  `json:"state"`
	}
	connections := make(map[string]shown, len(list))
	for _, c := range list {
		one := shown{c.Transport, c.Protocol, c.User, state{make(map[string]struct{}, len(c.Channels))}}
		for _, name := range c.Channels {
			one.State.Channels[name] = struct{}{}
		}
		connections[c.Client] = one
	}
	return json.Marshal(map[string]any{"connections": connections})
}

// overrides are rules for subscriptions instead of those of the namespace. A field that is missing
// is as the namespace says.
type overrides struct {
	Presence           *flag `json:"presence"`
	JoinLeave          *flag `json:"join_leave"`
	ForceRecovery      *flag `json:"force_recovery"`
	ForcePositioning   *flag `json:"force_positioning"`
	ForcePushJoinLeave *flag `json:"force_push_join_leave"`
}

// A flag is a boolean that can be missing.
type flag struct {
	Value bool `json:"value"`
}

// rules returns the overrides as the Go API has them.
func (o *overrides) rules() hub.Override {
	of := func(f *flag) *bool {
		if f == nil {
			return nil
		}
		return &f.Value
	}
	return hub.Override{Presence: of(o.Presence), JoinLeave: of(o.JoinLeave), ForceRecovery: of(o.ForceRecovery),
		ForcePositioning: of(o.ForcePositioning), ForcePushJoinLeave: of(o.ForcePushJoinLeave)}
}
