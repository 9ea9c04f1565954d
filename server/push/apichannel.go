package push

import (
	"context"
	"slices"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// This file holds the API's methods that query one channel.

func (s *Server) apiHistory(ctx context.Context, r *apiRequest) ([]byte, error) {
	h, err := s.History(ctx, r.Channel, Query{Since: (*Position)(r.Since), Limit: r.Limit, Reverse: r.Reverse})
	if err != nil {
		return nil, err
	}
	if r.asBytes {
		h.Publications = slices.Clone(h.Publications)
		for i := range h.Publications {
			h.Publications[i].Kind = Binary
		}
	}
	return centrifuge.AppendHistoryResult(nil, historyResult(h)), nil
}

func (s *Server) apiHistoryRemove(ctx context.Context, r *apiRequest) ([]byte, error) {
	return []byte("{}"), s.RemoveHistory(ctx, r.Channel)
}

func (s *Server) apiPresence(ctx context.Context, r *apiRequest) ([]byte, error) {
	there, err := s.Presence(ctx, r.Channel)
	return centrifuge.AppendPresenceResult(nil, presenceResult(there.Clients)), err
}

func (s *Server) apiPresenceStats(ctx context.Context, r *apiRequest) ([]byte, error) {
	there, err := s.PresenceStats(ctx, r.Channel)
	return centrifuge.AppendPresenceStatsResult(nil,
		&centrifuge.PresenceStatsResult{Clients: there.Count, Users: there.Users}), err
}

// historyResult returns a history in the shape of the client protocol, in JSON.
func historyResult(h History) *centrifuge.HistoryResult {
	shown := make([]centrifuge.Publication, len(h.Publications))
	for i := range h.Publications {
		p := &h.Publications[i]
		shown[i] = centrifuge.Publication{Data: JSONOf(p), Client: p.Client, User: p.User, Offset: p.Offset,
			Tags: p.Tags}
	}
	return &centrifuge.HistoryResult{Publications: shown, Position: centrifuge.Position(h.Top)}
}

// presenceResult returns clients in the shape of the client protocol.
func presenceResult(list []ClientInfo) *centrifuge.PresenceResult {
	shown := make([]centrifuge.ClientInfo, len(list))
	for i, info := range list {
		shown[i] = centrifuge.ClientInfo(info)
	}
	return &centrifuge.PresenceResult{Clients: shown}
}
