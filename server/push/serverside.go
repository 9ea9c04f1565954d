package push

import (
	"fmt"
	"slices"
)

// This file holds subscriptions that the server makes for a client.

// A serverSubscription is one of them, as the client is told of it.
type serverSubscription struct {
	channel string
	hello   welcome
}

// subscribeFirst makes the subscriptions that the client's token asks for. The caller holds back
// messages (session.hold) until the client has been told. request returns what the client has asked
// for, such as the position after which it continues.
func (s *session) subscribeFirst(channels []string, request func(channel string) (subscribeRequest, error)) (
	made []serverSubscription, err error) {
	for _, name := range channels {
		w, err := request(name)
		if err != nil {
			return made, err
		}
		w.server = true
		err = s.subscribe(name, w, func(hello welcome) { made = append(made, serverSubscription{name, hello}) })
		if err != nil {
			return made, err
		}
	}
	return made, nil
}

// alsoAsked returns given, and those of asked to which the client may subscribe without a token for
// the channel. The log has the others.
func (s *session) alsoAsked(given, asked []string) []string {
	for _, name := range asked {
		switch {
		case slices.Contains(given, name):
		case !s.mayName(name) || s.needsToken(name):
			why := s.node.rules.of(name).explainSubscribe(name, s.access())
			s.refused(refusedPermission, fmt.Errorf("connect: %q: %w", name, deniedFor(why)))
		default:
			given = append(given, name)
		}
	}
	return given
}

// subscribeByServer subscribes a connected client, and tells it. It returns false if the client's
// form cannot say so, and an Error if the client is subscribed already or has too many channels.
func (s *session) subscribeByServer(name string, w subscribeRequest) (told bool, err error) {
	if s.form().subscribed(name, welcome{}) == nil {
		return false, nil
	}
	w.server = true
	err = s.subscribe(name, w, func(hello welcome) {
		push := s.form().subscribed(name, hello)
		s.offer(&message{payload: push}) // if its queue is full, the next publication handles that
	})
	return err == nil, err
}
