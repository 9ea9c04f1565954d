package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/myriad-go/myriad/server/push/token"
)

// This file is what a client may do in a channel, by the rules and by what it has shown.

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

// ListsUser reports whether the name of a user-limited channel lists the user.
func ListsUser(channel, user string) bool {
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

// PersonalChannels returns the names of the user's personal channels. The error is a
// token.ClaimError.
func (t *Table) PersonalChannels(user string) (names []string, err error) {
	personal := t.current.Load().personal
	if len(personal) == 0 || user == "" {
		return nil, nil
	}
	if strings.ContainsAny(user, userBoundary+userSeparator) {
		return nil, token.ClaimError(fmt.Sprintf("the user %q has # or a comma: other users could have its personal "+
			"channel", user))
	}
	for _, prefix := range personal {
		names = append(names, prefix+userBoundary+user)
	}
	return names, nil
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

// An Access is what a client has shown that matters for channels.
type Access struct {
	User     string
	Channels []string // to which it may subscribe without another token
	Caps     Capabilities
}

// IsOpen reports whether every client may subscribe to every channel.
func (ns *Namespace) IsOpen() bool {
	return !ns.SubscribeToken && !ns.SubscribeHook && !ns.UserLimited
}

// NeedsToken reports whether a client with that access can subscribe to the channel only with a
// token for it, or by a hook.
func (ns *Namespace) NeedsToken(channel string, a Access) bool {
	switch {
	case ns.IsOpen():
		return false
	case ns.IsForUsers(channel):
		return !ListsUser(channel, a.User) && !a.grants(RightSubscribe, channel)
	case ns.SubscribeHook:
		return true
	}
	return ns.SubscribeToken && !a.grants(RightSubscribe, channel)
}

// grants reports whether the client's token itself allows what in the channel.
func (a *Access) grants(what Right, channel string) bool {
	return what == RightSubscribe && slices.Contains(a.Channels, channel) || a.Caps.Allow(what, channel)
}

// A Capability lets one client do some things in some channels, whatever the rules of their
// namespaces say. It only grants: several of them grant what each grants.
type Capability = token.Capability

// A Right is a set of what a Capability may allow.
type Right uint8

const (
	RightSubscribe Right = 1 << iota
	RightPublish
	RightPresence
	RightHistory
)

var rightNames = map[string]Right{token.RightSubscribe: RightSubscribe, token.RightPublish: RightPublish,
	token.RightPresence: RightPresence, token.RightHistory: RightHistory}

// These bound the capabilities of one client. More are an invalid token.
const (
	maxCapabilities       = 64
	maxCapabilityChannels = 256 // of all capabilities together
	maxCapabilityPattern  = 512 // bytes of a regular expression
)

// Capabilities are those of one client, ready for use. They do not change.
type Capabilities []capability

type capability struct {
	allow    Right
	names    []string // for equality
	patterns []string // with *
	regexes  []*regexp.Regexp
}

// Allow reports whether one of them grants what to the channel.
func (list Capabilities) Allow(what Right, channel string) bool {
	for i := range list {
		if list[i].allow&what != 0 && list[i].matches(channel) {
			return true
		}
	}
	return false
}

func (c *capability) matches(channel string) bool {
	return slices.Contains(c.names, channel) ||
		slices.ContainsFunc(c.patterns, func(pattern string) bool { return matches(pattern, channel) }) ||
		slices.ContainsFunc(c.regexes, func(re *regexp.Regexp) bool { return re.MatchString(channel) })
}

// A RegexCache shares compiled expressions among clients, because the tokens of all clients often
// have the same. Above maxCachedRegexes it shares no further ones.
type RegexCache struct {
	mu   sync.Mutex
	made map[string]*regexp.Regexp
}

const maxCachedRegexes = 1000

func (c *RegexCache) compile(text string) (*regexp.Regexp, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if re := c.made[text]; re != nil {
		return re, nil
	}
	re, err := regexp.Compile(text)
	if err == nil && len(c.made) < maxCachedRegexes {
		if c.made == nil {
			c.made = make(map[string]*regexp.Regexp)
		}
		c.made[text] = re
	}
	return re, err
}

// Capabilities checks list. The error is a token.ClaimError.
func (c *RegexCache) Capabilities(list []Capability) (all Capabilities, err error) {
	if len(list) > maxCapabilities {
		return nil, token.ClaimError(fmt.Sprintf("the claim caps has %d entries, at most %d are allowed", len(list),
			maxCapabilities))
	}
	channels := 0
	for _, given := range list {
		channels += len(given.Channels)
		if channels > maxCapabilityChannels {
			return nil, token.ClaimError(fmt.Sprintf("the claim caps names more than %d channels",
				maxCapabilityChannels))
		}
		one, err := c.capability(given)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func (c *RegexCache) capability(given Capability) (one capability, err error) {
	for _, name := range given.Allow {
		what, known := rightNames[name]
		if !known {
			return one, token.ClaimError(fmt.Sprintf("the claim caps allows %q: use sub, pub, prs or hst", name))
		}
		one.allow |= what
	}
	switch given.Match {
	case "":
		one.names = given.Channels
	case "wildcard":
		one.patterns = given.Channels
	case "regex":
		for _, text := range given.Channels {
			if len(text) > maxCapabilityPattern {
				return one,
					token.ClaimError(fmt.Sprintf("the claim caps has an expression of %d bytes, at most %d are allowed",
						len(text), maxCapabilityPattern))
			}
			re, err := c.compile(text)
			if err != nil {
				return one, token.ClaimError("the claim caps: " + err.Error())
			}
			one.regexes = append(one.regexes, re)
		}
	default:
		return one,
			token.ClaimError(fmt.Sprintf("the claim caps has the match %q: use wildcard or regex, or leave it out",
				given.Match))
	}
	if slices.Contains(one.patterns, "") {
		return one, token.ClaimError("the claim caps has an empty pattern: use * for all channels")
	}
	return one, nil
}

// matches reports whether name matches pattern, in which * matches any text. The empty pattern
// matches all names.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if pattern == "" || len(parts) == 1 {
		return pattern == "" || pattern == name
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(name) < len(first)+len(last) || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	name = name[len(first) : len(name)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, rest, found := strings.Cut(name, part)
		if !found {
			return false
		}
		name = rest
	}
	return true
}
