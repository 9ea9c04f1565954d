package push

import (
	"context"
	"encoding/json"
	"strings"
)

// This file holds the API's methods for operators. They act on all nodes: see cluster.go.

func (s *Server) apiChannels(ctx context.Context, r *apiRequest) ([]byte, error) {
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

// matches reports whether name matches pattern, in which * matches any text. The empty pattern
// matches all names.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if pattern == "" || len(parts) == 1 {
		return pattern == "" || pattern == name
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(name) < len(first)+len(last) || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	name = name[len(first) : len(name)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, rest, found := strings.Cut(name, part)
		if !found {
			return false
		}
		name = rest
	}
	return true
}

func (s *Server) apiInfo(ctx context.Context, _ *apiRequest) ([]byte, error) {
	list, err := s.nodes(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"nodes": list})
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

func (s *Server) apiDisconnect(ctx context.Context, r *apiRequest) ([]byte, error) {
	why := Disconnect{}
	if d := r.Disconnect; d != nil {
		if d.Code < 3000 || d.Code > 4999 {
			return nil, badRequest(badDisconnect)
		}
		why = Disconnect{uint16(d.Code), d.Reason}
	}
	return numClients(s.Disconnect(ctx, r.target(), why))
}

func (s *Server) apiSubscribe(ctx context.Context, r *apiRequest) ([]byte, error) {
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
	t := r.target()
	return numClients(s.subscribeAll(ctx, &t, r.Channel, &o, r.Override))
}

func (s *Server) apiRefresh(ctx context.Context, r *apiRequest) ([]byte, error) {
	return numClients(s.Refresh(ctx, r.target(), RefreshOptions{r.ExpireAt, r.Expired, r.Info}))
}

func (s *Server) apiUnsubscribe(ctx context.Context, r *apiRequest) ([]byte, error) {
	return numClients(s.Unsubscribe(ctx, r.target(), r.Channel))
}

// apiConnections lists all connections of a user, or all.
func (s *Server) apiConnections(ctx context.Context, r *apiRequest) ([]byte, error) {
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
