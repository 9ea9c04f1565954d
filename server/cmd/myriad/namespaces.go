package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/myriad-go/myriad/server/push"
)

// A rule is one key of a namespace: name=value in --namespace, or a line of a [[namespace]] in the
// file.
type rule struct {
	name  string
	usage string
	field func(*push.Namespace) any // see assign
}

var namespaceRules = []rule{
	{"name", "the part before the colon; without a name the rules are for all channels that no other namespace has",
		func(n *push.Namespace) any { return &n.Name }},
	{"history-size", "publications that each channel keeps, at most 65536",
		func(n *push.Namespace) any { return &n.HistorySize }},
	{"history-age", "how long a publication is kept, default `5m`",
		func(n *push.Namespace) any { return &n.HistoryAge }},
	{"recovery", "`true`: give returning subscribers what they have missed",
		func(n *push.Namespace) any { return &n.Recovery }},
	{"presence", "`true`: let subscribers ask which clients are subscribed",
		func(n *push.Namespace) any { return &n.Presence }},
	{"join-leave", "`true`: tell subscribers that ask for it which clients join and leave",
		func(n *push.Namespace) any { return &n.JoinLeave }},
	{"push-join-leave", "`true`: tell all subscribers which clients join and leave; needs `join-leave`",
		func(n *push.Namespace) any { return &n.PushJoinLeave }},
	{"publish", "which clients may publish: `clients` (all, the default), `subscribers`, `token` or `nobody`",
		func(n *push.Namespace) any { return (*string)(&n.Publish) }},
	{"subscribe-token", "`true`: a subscription needs a token with the claim `channel`",
		func(n *push.Namespace) any { return &n.SubscribeToken }},
	{"user-limited", "`true`: channels with `#` are for the users after it alone, as in `dialog#42,43`",
		func(n *push.Namespace) any { return &n.UserLimited }},
	{"personal", "`true`: the server subscribes each user to the channel `NAME:#USER`; includes `user-limited`",
		func(n *push.Namespace) any { return &n.Personal }},
	{"channel-regex", "what the name after the colon must match if a client names the channel, as in `^[0-9]+$`",
		func(n *push.Namespace) any { return &n.ChannelRegex }},
	{"known-only", "`true`, without a `name`: refuse channels `NAME:…` of namespaces that have no rules",
		func(n *push.Namespace) any { return &n.KnownOnly }},
	{"subscribe-proxy", "`true`: the backend of `--proxy-subscribe` decides about subscriptions without a token",
		func(n *push.Namespace) any { return &n.SubscribeHook }},
	{"sub-refresh-proxy", "`true`: the backend of `--proxy-sub-refresh` decides when such a subscription expires",
		func(n *push.Namespace) any { return &n.SubRefreshHook }},
	{"publish-proxy", "`true`: the backend of `--proxy-publish` decides about publications of clients",
		func(n *push.Namespace) any { return &n.PublishHook }},
	{"slow", "what happens to slow subscribers: `disconnect` (the default), `drop-oldest` or `latest-only`",
		func(n *push.Namespace) any { return (*string)(&n.Slow) }},
	{"slow-queue", "bytes that may wait for one subscriber before `drop-oldest` drops the oldest, default `64KiB`",
		func(n *push.Namespace) any { return &n.SlowQueue }},
}

// parseNamespace reads rules with spaces between them: name=value, or the name alone for a switch.
func parseNamespace(text string) (ns push.Namespace, err error) {
	if strings.Contains(text, ",") {
		return ns, errors.New("write spaces between rules, and ; between namespaces, but no comma")
	}
	given := map[string]any{}
	for _, field := range strings.Fields(text) {
		name, value, ok := strings.Cut(field, "=")
		if !ok {
			value = "true"
		}
		if _, twice := given[name]; twice {
			return ns, fmt.Errorf("%s is given twice", name)
		}
		given[name] = value
	}
	if len(given) == 0 {
		return ns, errors.New("write rules with spaces between them, as in \"name=chat history-size=100 recovery\"")
	}
	return namespaceOf(given)
}

// eachLine puts a prefix before err, or before each of the errors that it joins, because each gets
// a line of its own.
func eachLine(prefix string, err error) error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return fmt.Errorf("%s%w", prefix, err)
	}
	var lines []error
	for _, one := range joined.Unwrap() {
		lines = append(lines, eachLine(prefix, one))
	}
	return errors.Join(lines...)
}

// namespaceOf returns the namespace with the given rules, and reports all mistakes in them.
// push.New checks how the values fit together.
func namespaceOf(given map[string]any) (ns push.Namespace, err error) {
	known := map[string]rule{}
	for _, r := range namespaceRules {
		known[r.name] = r
	}
	var wrong []error
	for _, name := range sortedKeys(given) {
		r, ok := known[name]
		if !ok {
			wrong = append(wrong, fmt.Errorf("%q is no rule of a namespace%s", name,
				cmp.Or(didYouMean(name, sortedKeys(known)), ": docs/guides/push.md lists the rules")))
			continue
		}
		texts, err := textsOf(given[name])
		switch {
		case err == nil && len(texts) != 1:
			err = errors.New("write one value")
		case err == nil:
			err = assign(r.field(&ns), texts[0], true)
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s is %q: %w", name, fmt.Sprint(given[name]), err))
		}
	}
	return ns, errors.Join(wrong...)
}
