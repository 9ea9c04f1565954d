package push

import (
	"context"
	"encoding/json"
	"time"
)

// This file holds the API's methods for operators. They act on all nodes: see cluster.go.

func (s *apiDoor) apiChannels(ctx context.Context, r *apiRequest) ([]byte, error) {
	type shown struct {
		Clients int `json:"num_clients"`
	}
	list, err := s.Channels(ctx, r.Pattern)
	if err != nil {
		return nil, err
	}
	channels := make(map[string]shown, len(list))
	for _, ch := range list {
		channels[ch.Name] = shown{ch.Subscribers}
	}
	return json.Marshal(map[string]any{"channels": channels})
}

func (s *apiDoor) apiInfo(ctx context.Context, _ *apiRequest) ([]byte, error) {
	type node struct {
		ID            string `json:"uid"`
		Name          string `json:"name"`
		Version       string `json:"version"`
		Clients       int64  `json:"num_clients"`
		Channels      int    `json:"num_channels"`
		Uptime        int64  `json:"uptime"` // seconds
		Users         int    `json:"num_users"`
		Subscriptions int    `json:"num_subs"`
	}
	list, err := s.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	shown := make([]node, len(list))
	for i, n := range list {
		shown[i] = node{n.ID, n.Name, n.Version, n.Clients, n.Channels, int64(n.Uptime / time.Second), n.Users,
			n.Subscriptions}
	}
	return json.Marshal(map[string]any{"nodes": shown})
}

// target is the connections that a request selects.
func (r *apiRequest) target() Target {
	return Target{User: r.User, Client: r.Client, Session: r.Session, Except: r.Whitelist}
}

// numClients returns the result of a method that counts connections.
func numClients(n int, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]int{"num_clients": n})
}

func (s *apiDoor) apiDisconnect(ctx context.Context, r *apiRequest) ([]byte, error) {
	why := Disconnect{}
	if d := r.Disconnect; d != nil {
		if d.Code < 3000 || d.Code > 4999 {
			return nil, badRequest(badDisconnect)
		}
		why = Disconnect{uint16(d.Code), d.Reason}
	}
	return numClients(s.Disconnect(ctx, r.target(), why))
}

func (s *apiDoor) apiSubscribe(ctx context.Context, r *apiRequest) ([]byte, error) {
	if r.Data != nil && len(r.B64Data) > 0 || r.Info != nil && len(r.B64Info) > 0 {
		return nil, badRequest("data and b64data, or info and b64info, are both given: use one")
	}
	o := SubscribeOptions{Since: (*Position)(r.RecoverSince), Data: r.Data, Info: r.Info, ExpireAt: r.ExpireAt}
	if len(r.B64Data) > 0 {
		o.Data = r.B64Data
	}
	if len(r.B64Info) > 0 {
		o.Info = r.B64Info
	}
	o.Override = r.Override.rules()
	return numClients(s.Subscribe(ctx, r.target(), r.Channel, o))
}

func (s *apiDoor) apiRefresh(ctx context.Context, r *apiRequest) ([]byte, error) {
	return numClients(s.Refresh(ctx, r.target(), RefreshOptions{r.ExpireAt, r.Expired, r.Info}))
}

func (s *apiDoor) apiUnsubscribe(ctx context.Context, r *apiRequest) ([]byte, error) {
	return numClients(s.Unsubscribe(ctx, r.target(), r.Channel))
}

// apiConnections lists all connections of a user, or all.
func (s *apiDoor) apiConnections(ctx context.Context, r *apiRequest) ([]byte, error) {
	list, err := s.Connections(ctx, r.User)
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

// overrides are rules for subscriptions instead of those of the namespace. A field that is missing is
// as the namespace says.
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
func (o *overrides) rules() Override {
	of := func(f *flag) *bool {
		if f == nil {
			return nil
		}
		return &f.Value
	}
	return Override{Presence: of(o.Presence), JoinLeave: of(o.JoinLeave), ForceRecovery: of(o.ForceRecovery),
		ForcePositioning: of(o.ForcePositioning), ForcePushJoinLeave: of(o.ForcePushJoinLeave)}
}
