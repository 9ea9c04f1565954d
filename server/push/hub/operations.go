package hub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/token"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/answer"
)

// This file holds what doors can do with a session, besides subscribing (subscription.go). An
// operation returns an Error for the client, or an error with a Disconnect, which the door passes
// to DisconnectFor.

var (
	errNotConnected   = errors.New("push: the first command must be connect")
	errConnectedTwice = errors.New("push: connect may be sent once")
	errRefused        = errors.New("push: the client sends commands after a refused connect")
	errPong           = errors.New("push: a pong without a ping")
	errGone           = errors.New("push: the client has gone before connect was answered")
	errOtherUser      = errors.New("push: a refresh with the token of another user")
)

// notSeen is why a client may not read the history or presence of a channel.
var notSeen = policy.Denied("it is not subscribed, and could not subscribe without a token for the channel")

// Connect makes the session the user of the token, or whom Hooks.Connect says. After an Error, the
// client can only disconnect.
func (s *Session) Connect(r ConnectRequest) (Grant, error) {
	if s.IsConnected() {
		return Grant{}, errors.Join(answer.DisconnectBadRequest, errConnectedTwice)
	}
	if s.IsConnectRefused() {
		return Grant{}, errors.Join(answer.DisconnectBadRequest, errRefused)
	}
	g, err := s.hub.Authenticate(r.Token)
	if errors.Is(err, ErrNoToken) && s.hub.hooks.Connect != nil {
		g, err = s.hub.connectByHook(s.caller(), s.t.Remote(), r)
	}
	if s.hub.hooks.Connect != nil {
		s.hub.callers.dropValues(s.id)
	}
	switch {
	case errors.As(err, new(answer.Error)):
		s.refuseConnect()
		return g, err
	case errors.As(err, new(answer.Disconnect)):
		return g, err
	case errors.Is(err, errTokenExpired):
		s.refuseConnect()
		s.CountRefusal(RefusedExpired, err)
		return g, answer.ErrTokenExpired
	case errors.Is(err, errKeyNotYetKnown):
		s.refuseConnect()
		s.CountRefusal(RefusedUnknownKey, err)
		return g, answer.ErrInternal
	case errors.Is(err, ErrNoToken):
		return g, errors.Join(answer.DisconnectBadRequest, err) // as a centrifuge server that requires a token
	case err != nil:
		return g, errors.Join(answer.DisconnectInvalidToken, err)
	}
	if err := s.hub.addPersonal(&g); err != nil {
		return g, errors.Join(answer.DisconnectInvalidToken, err)
	}
	if s.hub.rates.Connect(g.User, s.hub.clock.Now()) > 0 {
		s.refuseConnect()
		return g, s.within(1, "connect")
	}
	if len(g.meta) > 0 && s.hub.callers.wanted {
		s.hub.callers.setMeta(s.id, g.meta)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage == stageEnded { // while a hook was asked
		return g, errors.Join(answer.DisconnectStale, errGone)
	}
	s.setConnected(g)
	return g, nil
}

// IsConnected reports whether the client has shown who it is, and its connection has not ended.
func (s *Session) IsConnected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stage == stageConnected
}

// IsConnectRefused reports whether Connect has failed with an Error: the client can only
// disconnect.
func (s *Session) IsConnectRefused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stage == stageRefused
}

func (s *Session) refuseConnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stage = stageRefused
}

// MustBeConnected returns an error with a Disconnect unless Connect has succeeded.
func (s *Session) MustBeConnected() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.stage {
	case stageNew:
		return errors.Join(answer.DisconnectBadRequest, errNotConnected)
	case stageRefused:
		return errors.Join(answer.DisconnectBadRequest, errRefused)
	}
	return nil
}

// DisconnectFor disconnects with the reason in err, and logs the whole error.
func (s *Session) DisconnectFor(err error) {
	reason := answer.DisconnectServerError
	errors.As(err, &reason)
	if errors.As(err, new(hookRefusal)) { // which was counted
		s.Disconnect(reason)
		return
	}
	why := RefusedFrame
	switch {
	case errors.Is(err, ErrNoToken):
		why = RefusedNoToken
	case errors.Is(err, errTokenExpired):
		why = RefusedExpired
	case reason == answer.DisconnectInvalidToken:
		why = RefusedToken
	}
	s.CountRefusal(why, err)
	s.Disconnect(reason)
}

// CountRefusal counts and logs what the client may not do.
func (s *Session) CountRefusal(why Refusal, err error) {
	s.hub.CountRefusal(why, s.t.Remote(), "client", s.id.String(), "user", s.User(), "error", OneLine(err))
}

// Pong takes the answer to the last ping, or one to the ping before that, if the client was pinged
// again because it has moved.
func (s *Session) Pong() error {
	s.mu.Lock()
	by := s.pongBy
	s.pongBy = 0 // a tick for the old deadline finds nothing due
	surplus := by == 0 && s.spared&sparedSurplus != 0
	if surplus {
		s.spared &^= sparedSurplus
	}
	s.mu.Unlock()
	switch {
	case surplus:
	case by == 0:
		return errors.Join(answer.DisconnectBadRequest, errPong)
	case by == timedByConn:
		s.t.(AnswerTimer).Answered()
	}
	return nil
}

// Refresh replaces the connection's token, and with it the connection's expiry. It returns the
// seconds until then.
func (s *Session) Refresh(token string) (ttl uint32, err error) {
	if s.hub.tokens == nil {
		return 0, answer.ErrNotAvailable
	}
	g, err := s.hub.Authenticate(token)
	switch {
	case errors.Is(err, errTokenExpired):
		return 0, errors.Join(answer.DisconnectExpired, err)
	case errors.Is(err, errKeyNotYetKnown):
		s.CountRefusal(RefusedUnknownKey, err)
		return 0, answer.ErrInternal
	case errors.Is(err, ErrNoToken):
		return 0, errors.Join(answer.DisconnectBadRequest, err)
	case err != nil:
		return 0, errors.Join(answer.DisconnectInvalidToken, err)
	case g.User != s.User():
		return 0, errors.Join(answer.DisconnectInvalidToken, errOtherUser)
	}
	s.Renew(g)
	if g.Ends.IsZero() {
		return 0, nil
	}
	return s.hub.TTL(g.Ends), nil
}

// Renew gives the client the rights of another token of its user.
func (s *Session) Renew(g Grant) {
	s.expireFrom(g.Ends)
	if len(g.meta) > 0 && s.hub.callers.wanted {
		s.hub.callers.setMeta(s.id, g.meta)
	}
	s.setCapabilities(g.caps)
}

// expireFrom makes the connection expire at a time that its token does not say; zero: never. It
// returns false if the session is not connected.
func (s *Session) expireFrom(ends time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage != stageConnected {
		return false
	}
	if s.endAt = 0; !ends.IsZero() {
		s.expireAt(ends)
	}
	s.hub.wheel.set(s, s.deadline())
	return true
}

// RefreshByServer makes the connection expire at a time, and others see info of the client, unless
// it is nil or the client has no token. It tells the client when it expires. It returns false if
// the session is not connected.
func (s *Session) RefreshByServer(ends time.Time, info []byte) bool {
	if !s.expireFrom(ends) {
		return false
	}
	if s.identity != nil {
		s.identity.show(info)
	}
	ttl := uint32(0)
	if !ends.IsZero() {
		ttl = s.hub.TTL(ends)
	}
	if push := s.form().Refreshed(ttl); push != nil {
		s.Tell("", &Message{Payload: push})
	}
	return true
}

// mayNamePublished returns an error for a channel to which no client may publish.
func (s *Session) mayNamePublished(channel string) error {
	switch {
	case !s.hub.rules.Knows(channel):
		return s.hub.rules.CheckKnown(channel)
	case !s.hub.rules.Of(channel).AllowsName(channel):
		return policy.ErrBadName
	}
	return nil
}

// MayPublishTo returns why the client may not publish to the channel. A hook is not asked: it
// decides about each publication.
func (s *Session) MayPublishTo(channel string) error {
	if err := s.mayNamePublished(channel); err != nil {
		return err
	}
	if !(s.hub.rules.Of(channel).PublishHook && !s.hub.rules.DenyClientPublish) && !s.mayPublish(channel) {
		return s.deniedPublish(channel)
	}
	return nil
}

// Publish sends p, which has data, to the channel in the client's name. exact says that the data
// came as bytes: JSON in them keeps its spaces.
func (s *Session) Publish(channel string, p bus.Publication, exact bool) error {
	p.Client, p.User = s.id.String(), s.User()
	if err := s.mayNamePublished(channel); err != nil {
		return err
	}
	if err := s.mayNow(policy.Publishing, "publish"); err != nil {
		return err
	}
	if s.hub.rules.Of(channel).PublishHook && !s.hub.rules.DenyClientPublish {
		return s.publishByHook(channel, p, exact)
	}
	if !s.mayPublish(channel) {
		return s.deniedPublish(channel)
	}
	_, err := s.hub.Publish(context.Background(), channel, p, false, exact)
	return err
}

// MaySubscribeNow returns an Error if the client has subscribed too often.
func (s *Session) MaySubscribeNow() error { return s.mayNow(policy.Subscribing, "subscribe") }

// MayCommandNow returns an Error if the client has sent too many other commands.
func (s *Session) MayCommandNow(what string) error { return s.mayNow(policy.Commanding, what) }

// mayNow counts what the client does. The error is for the client.
func (s *Session) mayNow(act policy.Act, what string) error {
	if s.watcher {
		return nil
	}
	return s.within(s.hub.rates.Take(act, s.User(), s.t.Remote(), s.hub.clock.Now()), what)
}

func (s *Session) within(wait time.Duration, what string) error {
	if wait == 0 {
		return nil
	}
	s.CountRefusal(RefusedRate, fmt.Errorf("%s: %w", what, answer.ErrTooManyRequests))
	return answer.ErrTooManyRequests
}

// RPC calls Config.RPC.
func (s *Session) RPC(method string, data []byte) ([]byte, error) {
	if s.hub.onRPC == nil {
		return nil, answer.ErrNotAvailable
	}
	data, err := s.hub.onRPC(context.Background(), s.caller(), method, data)
	// any other Error is an answer
	if errors.As(err, new(answer.Disconnect)) || errors.Is(err, answer.ErrPermissionDenied) {
		err = s.hookFailed("rpc", err)
	}
	return data, err
}

// Message calls Config.Message.
func (s *Session) Message(data []byte) error {
	if s.hub.onMessage == nil {
		return answer.DisconnectNotAvailable
	}
	s.hub.onMessage(context.Background(), s.caller(), data)
	return nil
}

// info returns what others may learn of the client.
func (s *Session) info() bus.ClientInfo {
	info := bus.ClientInfo{Client: s.id.String(), User: s.User()}
	if s.identity != nil {
		if shown := s.identity.info.Load(); shown != nil {
			info.ConnInfo = *shown
		}
	}
	return info
}

// History reads a channel's history.
func (s *Session) History(channel string, q bus.Query) (bus.History, error) {
	if err := s.hub.rules.CheckKnown(channel); err != nil {
		return bus.History{}, err
	}
	if s.hub.rules.Of(channel).HistorySize == 0 {
		return bus.History{}, answer.ErrNotAvailable
	}
	if !s.maySee(channel, policy.RightHistory) {
		return bus.History{}, notSeen
	}
	return s.hub.History(context.Background(), channel, q)
}

// Presence lists a channel's subscribers, or counts them only.
func (s *Session) Presence(channel string, numbers bool) (bus.Presence, error) {
	if err := s.hub.rules.CheckKnown(channel); err != nil {
		return bus.Presence{}, err
	}
	if !s.hub.rules.Of(channel).Presence {
		return bus.Presence{}, answer.ErrNotAvailable
	}
	if !s.maySee(channel, policy.RightPresence) {
		return bus.Presence{}, notSeen
	}
	return s.hub.Presence(context.Background(), channel, numbers)
}

// caller returns what hooks may learn of the client.
func (s *Session) caller() Caller {
	c := s.hub.callers.get(s.id)
	c.ClientInfo = s.info()
	return c
}

func (s *Session) hookFailed(hook string, err error) error {
	return s.hub.hookFailed(hook, s.caller(), s.t.Remote(), err)
}

// publishByHook asks whether the client may publish, and publishes what the hook allows.
func (s *Session) publishByHook(channel string, p bus.Publication, exact bool) error {
	a, err := s.hub.hooks.Publish(context.Background(), s.caller(), PublishRequest{channel, p.Data})
	if err != nil {
		return s.hookFailed("publish", err)
	}
	if a.Data != nil {
		p.Data, p.Kind = a.Data, KindOf(a.Data)
	}
	_, err = s.hub.Publish(context.Background(), channel, p, a.SkipHistory, exact)
	return err
}

// can reports whether the client has a capability for what in the channel.
func (s *Session) can(what policy.Right, name string) bool {
	if s.identity == nil {
		return false
	}
	caps := s.identity.caps.Load()
	return caps != nil && caps.Allow(what, name)
}

// mayPublish reports whether the rules of the channel let the client publish.
func (s *Session) mayPublish(name string) bool {
	if s.hub.rules.DenyClientPublish {
		return false
	}
	rules := s.hub.rules.Of(name)
	switch rules.Publish {
	case policy.PublishClients:
		if !rules.IsForUsers(name) || policy.ListsUser(name, s.User()) {
			return true
		}
	case policy.PublishSubscribers:
	case policy.PublishToken:
		if m := s.member(name); m != nil && m.grant != nil && m.grant.publish {
			return true
		}
		return s.can(policy.RightPublish, name)
	case policy.PublishNobody:
		return s.can(policy.RightPublish, name)
	}
	return s.member(name) != nil || s.can(policy.RightPublish, name)
}

// maySee reports whether the client may read the channel's history or presence: it is subscribed,
// or could subscribe without another token, or has the right.
func (s *Session) maySee(name string, what policy.Right) bool {
	return s.member(name) != nil || s.MayName(name) && !s.NeedsToken(name) || s.can(what, name)
}

// deniedPublish returns why the rules do not let the client publish.
func (s *Session) deniedPublish(name string) error {
	why := s.hub.rules.ExplainPublish(name, &token.Report{}, s.access())
	if strings.HasPrefix(why, "yes") {
		why = "it is not subscribed"
	}
	return policy.Denied(why)
}
