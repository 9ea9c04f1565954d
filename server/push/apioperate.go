package push

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
)

// This file holds the API's methods for operators. They act on all nodes: see cluster.go.

// mostChannels bounds the channels of one answer; those with the most subscribers come first.
const mostChannels = 1000

func (s *Server) apiChannels(ctx context.Context, r *apiRequest) ([]byte, error) {
	type shown struct {
		Clients int `json:"num_clients"`
	}
	if _, err := newGlob(r.Pattern); err != nil {
		return nil, badRequest(err.Error())
	}
	list, err := s.node.allChannels(ctx, operation{Pattern: r.Pattern, Most: mostChannels})
	if err != nil {
		return nil, err
	}
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

func (s *Server) apiInfo(ctx context.Context, _ *apiRequest) ([]byte, error) {
	list := []nodeInfo{}
	err := askAll(ctx, s.node, "info", operation{}, func(n nodeInfo) { list = append(list, n) })
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b nodeInfo) int { return strings.Compare(a.Name+a.ID, b.Name+b.ID) })
	return json.Marshal(map[string]any{"nodes": list})
}

// selection returns the part of an operation that selects sessions.
func (r *apiRequest) selection() (operation, error) {
	if r.User == "" && r.Client == "" && r.Session == "" {
		return operation{}, badRequest("user, client or session is missing")
	}
	return operation{Client: r.Client, Session: r.Session, User: r.User, Whitelist: r.Whitelist}, nil
}

// chosen returns the sessions that op selects: all sessions of the user, or the one with that
// client or session id. If several are given, all must fit.
func (n *node) chosen(op operation) (list []*session) {
	if op.User == "" && op.Client == "" && op.Session == "" {
		return nil
	}
	for _, one := range n.wheel.all() {
		if one.watcher {
			continue
		}
		if id := one.id.String(); op.Client != "" && id != op.Client || slices.Contains(op.Whitelist, id) {
			continue
		}
		if op.Session != "" && one.sessionID() != op.Session {
			continue
		}
		if op.User == "" || one.isConnected() && one.user() == op.User {
			list = append(list, one)
		}
	}
	return list
}

func numClients(n int) ([]byte, error) { return json.Marshal(map[string]int{"num_clients": n}) }

// apiDisconnect closes connections. By default the code tells clients not to reconnect.
func (s *Server) apiDisconnect(ctx context.Context, r *apiRequest) ([]byte, error) {
	op, err := r.selection()
	if err != nil {
		return nil, err
	}
	op.Code, op.Reason = endForceNoReconnect.Code, endForceNoReconnect.Reason
	if d := r.Disconnect; d != nil {
		if d.Code < 3000 || d.Code > 4999 || len(d.Reason) > maxReason {
			return nil, badRequest("disconnect needs a code of 3000 to 4999 and a reason of at most 123 bytes")
		}
		op.Code, op.Reason = uint16(d.Code), d.Reason
	}
	n, err := s.node.countAll(ctx, "disconnect", op)
	if err != nil {
		return nil, err
	}
	return numClients(n)
}

// maxReason is the most bytes of a close frame's reason (RFC 6455 §5.5).
const maxReason = 123

// apiSubscribe subscribes connections to a channel, and tells them. Those that are subscribed
// already are left out, and so are streams of /events, whose channels are in their address.
func (s *Server) apiSubscribe(ctx context.Context, r *apiRequest) ([]byte, error) {
	if err := s.checkChannel(r.Channel); err != nil {
		return nil, err
	}
	op, err := r.selection()
	if err != nil {
		return nil, err
	}
	op.Channel, op.Since = r.Channel, (*Position)(r.RecoverSince)
	if err := s.addToSubscribe(&op, r); err != nil {
		return nil, err
	}
	var sum subscribed
	err = askAll(ctx, s.node, "subscribe", op, func(one subscribed) {
		sum.Count += one.Count
		if one.Failed.Code != 0 {
			sum.Failed = one.Failed
		}
	})
	switch {
	case err != nil:
		return nil, err
	case sum.Failed.Code != 0:
		return nil, sum.Failed
	}
	return numClients(sum.Count)
}

// addToSubscribe takes what else a request may say of the subscriptions.
func (s *Server) addToSubscribe(op *operation, r *apiRequest) (err error) {
	switch now := s.node.clock.Now().Unix(); {
	case r.Data != nil && len(r.B64Data) > 0 || r.Info != nil && len(r.B64Info) > 0:
		return badRequest("data and b64data, or info and b64info, are both given: use one")
	case compactSize(r.Data)+len(r.B64Data)+compactSize(r.Info)+len(r.B64Info) > s.node.limits.Publication:
		return &apiError{code: apiLimitExceeded, message: "data or info is too large"}
	case r.ExpireAt != 0 && !s.node.authenticates():
		return badRequest("expire_at needs clients with tokens")
	case r.ExpireAt != 0 && (r.ExpireAt <= now || r.ExpireAt > now+maxExpiry):
		return badRequest("expire_at is not in the next hundred years")
	}
	if err := r.Override.check(s.node.rules.of(op.Channel)); err != nil {
		return err
	}
	op.ExpireAt, op.Data, op.Override = r.ExpireAt, r.Data, r.Override
	if len(r.B64Data) > 0 {
		op.Data = r.B64Data
	}
	if op.Info, err = infoOf(r.Info, r.B64Info); err != nil {
		return badRequest("info is not JSON")
	}
	return nil
}

// maxExpiry bounds expire_at, in seconds from now: nanoseconds since 1970 must not overflow.
const maxExpiry = 100 * 365 * 24 * 3600

// apiRefresh changes when connections expire: at expire_at, in seconds since 1970, at once, or
// never; and what others see of the clients.
func (s *Server) apiRefresh(ctx context.Context, r *apiRequest) ([]byte, error) {
	op, err := r.selection()
	switch {
	case err != nil:
		return nil, err
	case r.ExpireAt < 0 || r.ExpireAt > s.node.clock.Now().Unix()+maxExpiry:
		return nil, badRequest("expire_at is not in the next hundred years")
	case compactSize(r.Info) > s.node.limits.Publication:
		return nil, &apiError{code: apiLimitExceeded, message: "info is too large"}
	}
	op.ExpireAt, op.Never = r.ExpireAt, r.ExpireAt == 0 && !r.Expired
	if r.Expired {
		op.ExpireAt = 0 // at once
	}
	if op.Info, err = infoOf(r.Info, nil); err != nil {
		return nil, badRequest("info is not JSON")
	}
	n, err := s.node.countAll(ctx, "refresh", op)
	if err != nil {
		return nil, err
	}
	return numClients(n)
}

// apiUnsubscribe ends subscriptions.
func (s *Server) apiUnsubscribe(ctx context.Context, r *apiRequest) ([]byte, error) {
	if r.Channel == "" {
		return nil, badRequest("channel is missing")
	}
	op, err := r.selection()
	if err != nil {
		return nil, err
	}
	op.Channel = r.Channel
	n, err := s.node.countAll(ctx, "unsubscribe", op)
	if err != nil {
		return nil, err
	}
	return numClients(n)
}
