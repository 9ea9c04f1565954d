package push

import (
	"fmt"
	"slices"
)

// This file holds subscriptions that the server makes for a client.

// A ServerSubscription is a subscription that the server has made, as the client is told of it.
type ServerSubscription struct {
	Channel string
	Welcome Welcome
}

// SubscribeFirst makes the subscriptions that the client's token asks for. The caller holds back
// messages (Session.Hold) until the client has been told. request returns what the client has asked
// for, such as the position after which it continues.
func (s *Session) SubscribeFirst(channels []string, request func(channel string) (SubscribeCommand, error)) (
	made []ServerSubscription, err error) {
	for _, name := range channels {
		w, err := request(name)
		if err != nil {
			return made, err
		}
		w.server = true
		err = s.Subscribe(name, w, func(hello Welcome) { made = append(made, ServerSubscription{name, hello}) })
		if err != nil {
			return made, err
		}
	}
	return made, nil
}

// AlsoAsked returns given, and those of asked to which the client may subscribe without a token for
// the channel. The log has the others.
func (s *Session) AlsoAsked(given, asked []string) []string {
	for _, name := range asked {
		switch {
		case slices.Contains(given, name):
		case !s.MayName(name) || s.NeedsToken(name):
			why := s.node.rules.of(name).explainSubscribe(name, s.access())
			s.Refused(RefusedPermission, fmt.Errorf("connect: %q: %w", name, deniedFor(why)))
		default:
			given = append(given, name)
		}
	}
	return given
}

// subscribeByServer subscribes a connected client, and tells it. It returns false if the client's
// form cannot say so, and an Error if the client is subscribed already or has too many channels.
func (s *Session) subscribeByServer(name string, w SubscribeCommand) (told bool, err error) {
	if s.form().Subscribed(name, Welcome{}) == nil {
		return false, nil
	}
	w.server = true
	err = s.Subscribe(name, w, func(hello Welcome) {
		push := s.form().Subscribed(name, hello)
		s.Offer(&Message{Payload: push}) // if its queue is full, the next publication handles that
	})
	return err == nil, err
}
