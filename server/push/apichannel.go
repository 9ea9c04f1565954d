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
	return centrifuge.AppendHistoryResult(nil, centrifugeForm{}.historyResult(h)), nil
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
