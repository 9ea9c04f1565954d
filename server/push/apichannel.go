package push

import (
	"context"
	"slices"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// This file holds the API's methods that query one channel.

func (s *apiDoor) apiHistory(ctx context.Context, r *apiRequest) ([]byte, error) {
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
	return HistoryResult(h), nil
}

func (s *apiDoor) apiHistoryRemove(ctx context.Context, r *apiRequest) ([]byte, error) {
	return []byte("{}"), s.RemoveHistory(ctx, r.Channel)
}

func (s *apiDoor) apiPresence(ctx context.Context, r *apiRequest) ([]byte, error) {
	there, err := s.Presence(ctx, r.Channel)
	return PresenceResult(there.Clients), err
}

func (s *apiDoor) apiPresenceStats(ctx context.Context, r *apiRequest) ([]byte, error) {
	there, err := s.PresenceStats(ctx, r.Channel)
	return centrifuge.AppendPresenceStatsResult(nil,
		&centrifuge.PresenceStatsResult{Clients: there.Count, Users: there.Users}), err
}

// HistoryResult returns the result of the method history, in JSON.
func HistoryResult(h History) []byte {
	shown := make([]centrifuge.Publication, len(h.Publications))
	for i := range h.Publications {
		p := &h.Publications[i]
		shown[i] = centrifuge.Publication{Data: JSONOf(p), Client: p.Client, User: p.User, Offset: p.Offset,
			Tags: p.Tags}
	}
	return centrifuge.AppendHistoryResult(nil, &centrifuge.HistoryResult{Publications: shown,
		Position: centrifuge.Position(h.Top)})
}

// PresenceResult returns the result of the method presence, in JSON.
func PresenceResult(list []ClientInfo) []byte {
	shown := make([]centrifuge.ClientInfo, len(list))
	for i, info := range list {
		shown[i] = centrifuge.ClientInfo(info)
	}
	return centrifuge.AppendPresenceResult(nil, &centrifuge.PresenceResult{Clients: shown})
}
