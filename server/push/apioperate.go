package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// This file holds the API's methods for operators. They act on this node only.

// mostChannels bounds the channels of one answer; those with the most subscribers come first.
const mostChannels = 1000

func (s *Server) apiChannels(_ context.Context, r *apiRequest) ([]byte, error) {
	type shown struct {
		Clients int `json:"num_clients"`
	}
	if strings.ContainsAny(r.Pattern, "?[]{}\\") {
		return nil, badRequest(fmt.Sprintf("pattern %q: the only wildcard is *, which matches any text", r.Pattern))
	}
	list := s.node.hub.matching(func(name string) bool { return matches(r.Pattern, name) }, mostChannels)
	channels := make(map[string]shown, len(list.Channels))
	for _, ch := range list.Channels {
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

func (s *Server) apiInfo(context.Context, *apiRequest) ([]byte, error) {
	type shown struct {
		ID       string `json:"uid"`
		Name     string `json:"name"`
		Version  string `json:"version"`
		Clients  int64  `json:"num_clients"`
		Channels int    `json:"num_channels"`
		Uptime   int64  `json:"uptime"` // seconds
	}
	n := s.node
	return json.Marshal(map[string]any{"nodes": []shown{{
		n.id.String(), "myriad", n.version, n.count.connections.Load(), n.hub.channels(),
		int64(n.clock.Now().Sub(n.started) / time.Second),
	}}})
}

// chosen returns the sessions that a request selects: all sessions of the user, or the session of
// the client. If both are given, the session must belong to the user.
func (s *Server) chosen(r *apiRequest) ([]*session, error) {
	if r.User == "" && r.Client == "" {
		return nil, badRequest("user or client is missing")
	}
	var list []*session
	for _, one := range s.node.wheel.all() {
		if one.watcher {
			continue
		}
		if id := one.id.String(); r.Client != "" && id != r.Client || slices.Contains(r.Whitelist, id) {
			continue
		}
		if r.User == "" || one.isConnected() && one.user() == r.User {
			list = append(list, one)
		}
	}
	return list, nil
}

func numClients(n int) ([]byte, error) { return json.Marshal(map[string]int{"num_clients": n}) }

// apiDisconnect closes connections. By default the code tells clients not to reconnect.
func (s *Server) apiDisconnect(_ context.Context, r *apiRequest) ([]byte, error) {
	list, err := s.chosen(r)
	if err != nil {
		return nil, err
	}
	reason := endForceNoReconnect
	if d := r.Disconnect; d != nil {
		if d.Code < 3000 || d.Code > 4999 || len(d.Reason) > maxReason {
			return nil, badRequest("disconnect needs a code of 3000 to 4999 and a reason of at most 123 bytes")
		}
		reason = ending{Code: uint16(d.Code), Reason: d.Reason}
	}
	n := 0
	for _, one := range list {
		if one.disconnect(reason) {
			n++
		}
	}
	return numClients(n)
}

// maxReason is the most bytes of a close frame's reason (RFC 6455 §5.5).
const maxReason = 123

// apiSubscribe subscribes connections to a channel, and tells them. Those that are subscribed
// already are left out, and so are streams of /events, whose channels are in their address.
func (s *Server) apiSubscribe(_ context.Context, r *apiRequest) ([]byte, error) {
	if r.Channel == "" {
		return nil, badRequest("channel is missing")
	}
	list, err := s.chosen(r)
	if err != nil {
		return nil, err
	}
	w := subscribeRequest{}
	if r.RecoverSince != nil {
		w.recover, w.since = true, Position(*r.RecoverSince)
	}
	n := 0
	for _, one := range list {
		if !one.isConnected() {
			continue
		}
		told, err := one.subscribeByServer(r.Channel, w)
		switch {
		case told:
			n++
		case err != nil && !errors.Is(err, failAlreadySubscribed):
			return nil, err
		}
	}
	return numClients(n)
}

// apiRefresh changes when connections expire: at expire_at, in seconds since 1970, or at once.
func (s *Server) apiRefresh(_ context.Context, r *apiRequest) ([]byte, error) {
	if r.Expired == (r.ExpireAt != 0) || r.ExpireAt < 0 {
		return nil, badRequest("refresh needs either expired or expire_at, in seconds since 1970")
	}
	list, err := s.chosen(r)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, one := range list {
		if r.Expired && one.disconnect(endExpired) || !r.Expired && one.expireFrom(time.Unix(r.ExpireAt, 0)) {
			n++
		}
	}
	return numClients(n)
}

// apiUnsubscribe ends subscriptions. The code tells client libraries not to resubscribe.
func (s *Server) apiUnsubscribe(_ context.Context, r *apiRequest) ([]byte, error) {
	if r.Channel == "" {
		return nil, badRequest("channel is missing")
	}
	list, err := s.chosen(r)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, one := range list {
		if one.end(r.Channel, unsubscribedByServer) {
			n++
		}
	}
	return numClients(n)
}
