package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push/token"
)

// A ChannelNote says what the bearer may do in a channel, and why.
type ChannelNote struct {
	Channel            string
	Subscribe, Publish string // begin with "yes", "no" or "asks"
}

// Explain says what a client with that access may do in the channel.
func (t *Table) Explain(name string, given *token.Report, a Access) ChannelNote {
	note := ChannelNote{Channel: name}
	rules := t.Of(name)
	switch {
	case !t.IsName(name):
		note.Subscribe = "no: it is no name of a channel (107)"
	case given.Channel == name:
		note.Subscribe = "yes: the token is for it"
	case given.Channel != "":
		note.Subscribe = fmt.Sprintf("no: the token is for the channel %q (103)", given.Channel)
	default:
		note.Subscribe = rules.ExplainSubscribe(name, a)
	}
	note.Publish = t.ExplainPublish(name, given, a)
	if t.IsName(name) && !t.Knows(name) {
		note.Subscribe = "no: the part before the colon names no namespace, and the rule known-only refuses that (102)"
		note.Publish = note.Subscribe
	}
	return note
}

// ExplainSubscribe says whether a client with that access may subscribe to the channel, and why. It
// begins with "yes", "no" or "asks".
func (ns *Namespace) ExplainSubscribe(name string, a Access) string {
	switch {
	case slices.Contains(a.Channels, name):
		return "yes: the server subscribes the bearer"
	case !ns.AllowsName(name):
		return fmt.Sprintf("no: the name does not match channel-regex %s (107)", ns.ChannelRegex)
	case ns.IsForUsers(name) && ListsUser(name, a.User):
		return "yes: the name lists the user"
	case ns.SubscribeHook && !ns.IsForUsers(name):
		return "asks the backend of --proxy-subscribe"
	case !ns.NeedsToken(name, a):
		if ns.IsOpen() || !ns.SubscribeToken && !ns.IsForUsers(name) {
			return "yes: every client may"
		}
		return "yes: by the claim caps"
	case ns.IsForUsers(name):
		return "no: the name lists other users (103)"
	}
	return "no: the rule subscribe-token wants a token with the claim channel, or the channel in channels or caps (103)"
}

// ExplainPublish says whether a client with that access may publish to the channel, and why. It
// begins with "yes", "no" or "asks". given is the report of its token for a subscription, if it has
// one.
func (t *Table) ExplainPublish(name string, given *token.Report, a Access) string {
	rules := t.Of(name)
	switch {
	case t.DenyClientPublish:
		return "no: --deny-client-publish (103)"
	case !rules.AllowsName(name):
		return fmt.Sprintf("no: the name does not match channel-regex %s (107)", rules.ChannelRegex)
	case rules.PublishHook:
		return "asks the backend of --proxy-publish"
	case a.Caps.Allow(RightPublish, name):
		return "yes: by the claim caps"
	case rules.Publish == PublishToken && given.Channel == name && given.Publish:
		return "yes, when subscribed: by the claim allow"
	case rules.Publish == PublishClients && (!rules.IsForUsers(name) || ListsUser(name, a.User)):
		return "yes: every client may"
	case rules.Publish == PublishClients || rules.Publish == PublishSubscribers:
		return "yes, when subscribed"
	}
	return "no: the rule publish=" + string(rules.Publish) + " (103)"
}

// Denied returns ErrPermissionDenied with a reason for the log and the console. why may be a
// note of ExplainSubscribe or ExplainPublish.
func Denied(why string) error {
	why = strings.TrimSuffix(strings.TrimPrefix(why, "no: "), " (103)")
	return fmt.Errorf("%w: %s", answer.ErrPermissionDenied, why)
}
