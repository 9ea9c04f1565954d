package push

import (
	"fmt"
	"slices"
	"strings"
)

// This file says what the rules of a channel, and what a client has shown, let the client do.

// userBoundary stands in the names of user-limited channels, before their users. userSeparator
// stands between users.
const (
	userBoundary  = "#"
	userSeparator = ","
)

// IsForUsers reports whether the channel is for the users in its name alone.
func (ns *Namespace) IsForUsers(channel string) bool {
	return ns.UserLimited && strings.Contains(channel, userBoundary)
}

// listsUser reports whether the name of a user-limited channel lists the user.
func listsUser(channel, user string) bool {
	if user == "" {
		return false
	}
	for one := range strings.SplitSeq(channel[strings.LastIndex(channel, userBoundary)+1:], userSeparator) {
		if one == user {
			return true
		}
	}
	return false
}

// AllowsName reports whether clients may use the channel's name: it matches ChannelRegex, which is
// for the part after the namespace.
func (ns *Namespace) AllowsName(channel string) bool {
	if ns.regex == nil {
		return true
	}
	if ns.Name != "" {
		channel = channel[len(ns.Name)+1:]
	}
	return ns.regex.MatchString(channel)
}

// An access is what a client has shown that matters for channels.
type access struct {
	user     string
	channels []string // to which it may subscribe without another token
	caps     capabilities
}

func (g *Grant) access() access { return access{g.User, g.Channels, g.caps} }

func (s *Session) access() access {
	if s.identity == nil {
		return access{}
	}
	a := access{user: s.identity.user, channels: s.identity.channels}
	if caps := s.identity.caps.Load(); caps != nil {
		a.caps = *caps
	}
	return a
}

// isOpen reports whether every client may subscribe to every channel.
func (ns *Namespace) isOpen() bool {
	return !ns.SubscribeToken && !ns.SubscribeHook && !ns.UserLimited
}

// needsToken reports whether a client with that access can subscribe to the channel only with a
// token for it, or by a hook.
func (ns *Namespace) needsToken(channel string, a access) bool {
	switch {
	case ns.isOpen():
		return false
	case ns.IsForUsers(channel):
		return !listsUser(channel, a.user) && !a.grants(rightSubscribe, channel)
	case ns.SubscribeHook:
		return true
	}
	return ns.SubscribeToken && !a.grants(rightSubscribe, channel)
}

// grants reports whether the client's token itself allows what in the channel.
func (a *access) grants(what right, channel string) bool {
	return what == rightSubscribe && slices.Contains(a.channels, channel) || a.caps.allow(what, channel)
}

// NeedsToken reports whether the client can subscribe only with a token for the channel, or by a
// hook.
func (s *Session) NeedsToken(name string) bool {
	rules := s.node.rules.of(name)
	return !s.watcher && !rules.isOpen() && rules.needsToken(name, s.access())
}

// can reports whether the client has a capability for what in the channel.
func (s *Session) can(what right, name string) bool {
	if s.identity == nil {
		return false
	}
	caps := s.identity.caps.Load()
	return caps != nil && caps.allow(what, name)
}

// mayPublish reports whether the rules of the channel let the client publish.
func (s *Session) mayPublish(name string) bool {
	if s.node.denyClientPublish {
		return false
	}
	rules := s.node.rules.of(name)
	switch rules.Publish {
	case PublishClients:
		if !rules.IsForUsers(name) || listsUser(name, s.User()) {
			return true
		}
	case PublishSubscribers:
	case PublishToken:
		if m := s.member(name); m != nil && m.grant != nil && m.grant.publish {
			return true
		}
		return s.can(rightPublish, name)
	case PublishNobody:
		return s.can(rightPublish, name)
	}
	return s.member(name) != nil || s.can(rightPublish, name)
}

// maySee reports whether the client may read the channel's history or presence: it is subscribed,
// or could subscribe without another token, or has the right.
func (s *Session) maySee(name string, what right) bool {
	return s.member(name) != nil || s.MayName(name) && !s.NeedsToken(name) || s.can(what, name)
}

// MayName reports whether the client may use the name.
func (s *Session) MayName(name string) bool {
	return s.node.checkChannel(name) == nil && (s.watcher || s.node.rules.of(name).AllowsName(name))
}

// deniedFor returns ErrPermissionDenied with a reason for the log and the console. why may be a
// note of ExplainToken.
func deniedFor(why string) error {
	why = strings.TrimSuffix(strings.TrimPrefix(why, "no: "), " (103)")
	return fmt.Errorf("%w: %s", ErrPermissionDenied, why)
}

// deniedPublish returns why the rules do not let the client publish.
func (s *Session) deniedPublish(name string) error {
	why := s.node.explainPublish(s.node.rules.of(name), name, &TokenReport{}, s.access())
	if strings.HasPrefix(why, "yes") {
		why = "it is not subscribed"
	}
	return deniedFor(why)
}

// notSeen is why a client may not read the history or presence of a channel.
var notSeen = deniedFor("it is not subscribed, and could not subscribe without a token for the channel")

// addPersonal adds the user's personal channels to those to which the server subscribes it. The
// error is a claimError.
func (n *node) addPersonal(g *Grant) error {
	personal := n.rules.Load().personal
	if len(personal) == 0 || g.User == "" {
		return nil
	}
	if strings.ContainsAny(g.User, userBoundary+userSeparator) {
		return claimError(fmt.Sprintf("the user %q has # or a comma: other users could have its personal channel",
			g.User))
	}
	for _, prefix := range personal {
		name := prefix + userBoundary + g.User
		if n.checkChannel(name) != nil {
			return claimError(n.channelRule(fmt.Sprintf("the user's personal channel %q", name), name))
		}
		if !slices.Contains(g.Channels, name) {
			g.Channels = append(g.Channels, name)
		}
	}
	if len(g.Channels) > n.limits.Channels {
		return claimError(fmt.Sprintf("%d channels with the personal ones, at most %d are allowed", len(g.Channels),
			n.limits.Channels))
	}
	slices.Sort(g.Channels)
	return nil
}
