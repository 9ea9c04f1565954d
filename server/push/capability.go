package push

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/myriad-go/myriad/server/push/token"
)

// A Capability lets one client do some things in some channels, whatever the rules of their
// namespaces say. It only grants: several of them grant what each grants.
type Capability = token.Capability

// A right is a set of what a Capability may allow.
type right uint8

const (
	rightSubscribe right = 1 << iota
	rightPublish
	rightPresence
	rightHistory
)

var rightNames = map[string]right{token.RightSubscribe: rightSubscribe, token.RightPublish: rightPublish,
	token.RightPresence: rightPresence, token.RightHistory: rightHistory}

// These bound the capabilities of one client. More are an invalid token.
const (
	maxCapabilities       = 64
	maxCapabilityChannels = 256 // of all capabilities together
	maxCapabilityPattern  = 512 // bytes of a regular expression
)

// capabilities are those of one client, ready for use. They do not change.
type capabilities []capability

type capability struct {
	allow    right
	names    []string // for equality
	patterns []string // with *
	regexes  []*regexp.Regexp
}

// allow reports whether one of them grants what to the channel.
func (list capabilities) allow(what right, channel string) bool {
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

// A regexCache shares compiled expressions among clients, because the tokens of all clients often
// have the same. Above maxCachedRegexes it shares no further ones.
type regexCache struct {
	mu   sync.Mutex
	made map[string]*regexp.Regexp
}

const maxCachedRegexes = 1000

func (c *regexCache) compile(text string) (*regexp.Regexp, error) {
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

// capabilities checks list. The error is a claimError.
func (c *regexCache) capabilities(list []Capability) (all capabilities, err error) {
	if len(list) > maxCapabilities {
		return nil, claimError(fmt.Sprintf("the claim caps has %d entries, at most %d are allowed", len(list),
			maxCapabilities))
	}
	channels := 0
	for _, given := range list {
		channels += len(given.Channels)
		if channels > maxCapabilityChannels {
			return nil, claimError(fmt.Sprintf("the claim caps names more than %d channels", maxCapabilityChannels))
		}
		one, err := c.capability(given)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func (c *regexCache) capability(given Capability) (one capability, err error) {
	for _, name := range given.Allow {
		what, known := rightNames[name]
		if !known {
			return one, claimError(fmt.Sprintf("the claim caps allows %q: use sub, pub, prs or hst", name))
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
					claimError(fmt.Sprintf("the claim caps has an expression of %d bytes, at most %d are allowed",
						len(text), maxCapabilityPattern))
			}
			re, err := c.compile(text)
			if err != nil {
				return one, claimError("the claim caps: " + err.Error())
			}
			one.regexes = append(one.regexes, re)
		}
	default:
		return one, claimError(fmt.Sprintf("the claim caps has the match %q: use wildcard or regex, or leave it out",
			given.Match))
	}
	if slices.Contains(one.patterns, "") {
		return one, claimError("the claim caps has an empty pattern: use * for all channels")
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
