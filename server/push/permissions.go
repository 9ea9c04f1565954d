package push

import (
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/myriad-go/myriad/server/push/token"
)

// This file is what a client may do: by the rules of the channel, and by its token or hook.

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

// These are names of package token for functions in which token is a variable.
var (
	errTokenExpired   = token.ErrExpired
	errKeyNotYetKnown = token.ErrKeyNotYetKnown
)

// A claimError is why a correctly signed token is refused. The client may see it.
type claimError = token.ClaimError

// NeedsTokens reports whether clients need a token.
func (c Config) NeedsTokens() bool { return c.tokens().HasKeys() }

// Authenticates reports whether clients must show who they are: by a token, or to Hooks.Connect.
func (c Config) Authenticates() bool { return c.NeedsTokens() || c.Hooks.Connect != nil }

// tokens returns the part of c that says which tokens are accepted.
func (c Config) tokens() token.Config {
	return token.Config{Secret: c.TokenSecret, Keys: c.TokenKeys, KeysURL: c.TokenKeysURL, Issuer: c.TokenIssuer,
		Audience: c.TokenAudience}
}

// newTokenVerifier returns nil without a key: clients then need no token.
func newTokenVerifier(c Config, clock Clock, log *slog.Logger) (*token.Verifier, error) {
	t := c.tokens()
	t.Now, t.Log = clock.Now, log
	return token.New(t)
}

// A Grant is what a client may do, as its token or Hooks.Connect says. The zero value is that of a
// client that need not show who it is.
type Grant struct {
	User     string            // "": none; a token has one
	Ends     time.Time         // when the client has to show again who it is; zero: never
	info     []byte            // JSON that others see; nil: none
	Channels []string          // to which the server subscribes the bearer, sorted
	Infos    map[string][]byte // by channel: JSON that others see there; nil without one
	id       clientID          // that a hook was asked about; zero: the session gets one
	watcher  bool              // an operator with the console's key instead of a token
	Hooked   bool              // Hooks.Connect has granted it
	meta     []byte            // JSON for hooks
	given    []Capability      // not checked yet
	caps     capabilities      // given, after node.checkGrant
	Data     []byte            // for the reply, from Hooks.Connect
}

// grantOf returns what a token for a connection grants, before node.checkGrant.
func grantOf(c token.Connection) Grant {
	return Grant{User: c.User, Ends: c.Ends, info: c.Info, Channels: c.Channels, Infos: c.Infos, meta: c.Meta,
		given: c.Capabilities}
}

// sortedNames returns the names without those that come twice.
func sortedNames(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }

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

// maxGlob bounds a glob, in bytes.
const maxGlob = 1024

// newGlob returns an expression for the names that a glob matches. The empty glob matches all
// names. In a glob these have a meaning:
//
//   - "*": any text
//   - "?": any character
//   - "[a-c]": one of the characters a to c; "[!a-c]": any other one
//   - "{a,b}": what one of the globs a and b matches
//   - "\c": the character c, whatever it is
func newGlob(glob string) (*regexp.Regexp, error) {
	if glob == "" {
		glob = "*"
	}
	if len(glob) > maxGlob {
		return nil, fmt.Errorf("the pattern has %d bytes, at most %d are allowed", len(glob), maxGlob)
	}
	var re strings.Builder
	re.WriteString(`(?s)\A`)
	depth := 0
	for rest := glob; rest != ""; {
		var c string
		c, rest = firstRune(rest)
		switch {
		case c == "*":
			re.WriteString(".*")
		case c == "?":
			re.WriteString(".")
		case c == "[":
			class, after, closed := strings.Cut(rest, "]")
			if !closed {
				return nil, fmt.Errorf("the pattern %q has [ without ]", glob)
			}
			re.WriteString(classOf(class))
			rest = after
		case c == "{":
			re.WriteString("(?:")
			depth++
		case c == "}" && depth > 0:
			re.WriteString(")")
			depth--
		case c == "," && depth > 0:
			re.WriteString("|")
		case c == `\` && rest != "":
			c, rest = firstRune(rest)
			fallthrough
		default:
			re.WriteString(regexp.QuoteMeta(c))
		}
	}
	if depth > 0 {
		return nil, fmt.Errorf("the pattern %q has { without }", glob)
	}
	made, err := regexp.Compile(re.String() + `\z`)
	if err != nil {
		return nil, fmt.Errorf("the pattern %q is not a glob: %w", glob, err)
	}
	return made, nil
}

// firstRune divides text after its first character, or after its first byte where it is not UTF-8.
func firstRune(text string) (first, rest string) {
	for i := range text {
		if i > 0 {
			return text[:i], text[i:]
		}
	}
	return text, ""
}

// classOf returns the expression for the inside of brackets.
func classOf(inside string) string {
	inside, negated := strings.CutPrefix(inside, "!")
	inside = strings.NewReplacer(`\`, `\\`, "[", `\[`, "^", `\^`, "&", `\&`, "~", `\~`).Replace(inside)
	if negated {
		return "[^" + inside + "]"
	}
	return "[" + inside + "]"
}
