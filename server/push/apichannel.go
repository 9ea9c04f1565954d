package push

import (
	"context"
	"errors"
	"slices"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// This file holds the API's methods that query one channel.

// mustHave returns an error for an invalid name, and for a channel whose namespace lacks the
// feature that has checks.
func (s *Server) mustHave(name string, has func(*Namespace) bool) error {
	err := s.checkChannel(name)
	if err == nil && !has(s.node.rules.of(name)) {
		return failNotAvailable
	}
	return err
}

// checkChannel returns the API's error for a name that no channel may have.
func (s *Server) checkChannel(name string) error {
	switch err := s.node.checkChannel(name); {
	case name == "":
		return badCall("channel is missing")
	case errors.Is(err, errBadChannel):
		return badCall(s.node.channelRule("the channel", name))
	default:
		return err
	}
}

func keepsHistory(ns *Namespace) bool  { return ns.HistorySize > 0 }
func showsPresence(ns *Namespace) bool { return ns.Presence }

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
