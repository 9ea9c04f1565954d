package push

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A Namespace is the rules of some channels. It applies to channels whose name begins with
// Namespace.Name and a colon: namespace "chat" has the channel "chat:room-7". The namespace without
// a name has all other channels, also those whose part before the colon names no namespace. The
// zero value keeps nothing, sends no notices, and lets every client subscribe and publish.
type Namespace struct {
	// Name is 1 to 64 letters, digits, '-', '_' and '.', or empty for the default namespace.
	Name string

	// HistorySize is how many publications each channel keeps in memory: the latest, at most
	// 65,536. 0: none. Subscribers read them with the history command. Limits.HistoryBytes and
	// HistoryChannels bound all channels together.
	HistorySize int
	// HistoryAge is how long a publication is kept, default 5 minutes. It needs HistorySize.
	HistoryAge time.Duration
	// Recovery sends a returning subscriber the publications that it has missed, as far as the
	// history reaches, and says whether they are complete. It needs HistorySize. Every subscriber
	// may recover; the client libraries do so automatically.
	Recovery bool

	// Presence lets subscribers list the channel's subscribers (presence and presence_stats).
	Presence bool
	// JoinLeave sends a notice of each join and leave to subscribers that ask for it. Each notice
	// costs one message per subscriber, so it suits small channels.
	JoinLeave bool
	// PushJoinLeave sends these notices to all subscribers, also to those that do not ask. It needs
	// JoinLeave.
	PushJoinLeave bool

	// Publish says which clients may publish; the HTTP API always may. Default: PublishClients.
	// Config.DenyClientPublish overrides it.
	Publish PublishRule
	// SubscribeToken requires a token to subscribe: a JWT like the connection's, with the same sub
	// and with the claim channel. It needs Config.TokenSecret.
	SubscribeToken bool

	// UserLimited reserves channels with a # for the users after the last #, with commas between
	// them: "chat:dialog#42,43" is for 42 and 43. They need no other token, and SubscribeHook does
	// not act. Others may subscribe with a token for the channel, or a
	// Capability. Under PublishClients the same clients may publish.
	UserLimited bool
	// Personal subscribes each client of the Centrifuge protocol to the channel "NAME:#USER" of its
	// user when it connects. In the default namespace that is "#USER". It includes UserLimited.
	Personal bool
	// ChannelRegex is a regular expression (RE2) for channels that clients name. The part after the
	// namespace must match it, or the client is answered 107 "bad request". Empty: anything. The
	// server does not check channels in tokens and in the API.
	ChannelRegex string

	// KnownOnly refuses a channel if the part of its name before the colon names no Namespace.
	// Clients and the API are answered 102 "unknown channel". Only the namespace without a name may
	// have it.
	KnownOnly bool

	// SubscribeHook asks Hooks.Subscribe about each subscription without a token, and PublishHook
	// asks Hooks.Publish about each publication of a client. Then SubscribeToken and Publish do not
	// act. SubRefreshHook asks Hooks.SubRefresh when a subscription expires that Hooks.Subscribe
	// has allowed.
	SubscribeHook, PublishHook, SubRefreshHook bool

	// Slow is the policy for a subscriber that reads more slowly than others publish. Default:
	// SlowDisconnect.
	Slow SlowPolicy
	// SlowQueue is how many bytes of one channel wait for one subscriber under SlowDropOldest
	// before the oldest are dropped, default 64 KiB. Up to 64 KiB more are with the transport, and
	// cannot be dropped. It needs SlowDropOldest. SlowDisconnect uses Limits.Queue instead, for all
	// channels of a client together.
	SlowQueue int

	regex *regexp.Regexp // ChannelRegex; nil: anything
}

// A PublishRule says which clients may publish to the channels of a Namespace. Others are answered
// 103 "permission denied".
type PublishRule string

const (
	PublishClients     PublishRule = "clients"     // every client that is connected
	PublishSubscribers PublishRule = "subscribers" // clients that are subscribed to the channel
	// subscribers whose token for the channel has "pub" in its claim allow
	PublishToken  PublishRule = "token"
	PublishNobody PublishRule = "nobody" // none: channels are for subscribing only
)

// A SlowPolicy says what happens when too much waits for a subscriber.
type SlowPolicy string

const (
	// SlowDisconnect closes the connection with code 3008 "slow" when Limits.Queue bytes wait for
	// it. The client reconnects; if the namespace has Recovery, it recovers what it has missed.
	SlowDisconnect SlowPolicy = "disconnect"
	// SlowDropOldest keeps the latest Namespace.SlowQueue bytes of the channel for the subscriber,
	// and drops what is older. The connection stays open. The subscriber gets publications in
	// order, with a gap.
	SlowDropOldest SlowPolicy = "drop-oldest"
	// SlowLatestOnly keeps only the latest publication of the channel for the subscriber. It suits
	// channels that publish states.
	SlowLatestOnly SlowPolicy = "latest-only"
)

// MaxHistorySize bounds Namespace.HistorySize, in publications.
const MaxHistorySize = 1 << 16

const (
	maxNamespaceName = 64
	defaultAge       = 5 * time.Minute
	defaultSlowQueue = 64 << 10
)

// namespaces holds the namespaces of a Config, validated, with defaults filled in.
type namespaces struct {
	none  *Namespace // the namespace without a name
	named map[string]*Namespace

	personal []string // what precedes # in the names of personal channels
}

// A ruleTable holds the namespaces in use, which Server.Reload replaces.
type ruleTable struct{ atomic.Pointer[namespaces] }

func newRuleTable(all namespaces) *ruleTable {
	t := new(ruleTable)
	t.Store(&all)
	return t
}

// of returns the rules of the channel named name.
func (t *ruleTable) of(channel string) *Namespace { return t.Load().of(channel) }

func newNamespaces(list []Namespace, tokens bool) (namespaces, error) {
	all := namespaces{none: new(Namespace{}.withDefaults()), named: make(map[string]*Namespace)}
	var wrong []error
	for i, ns := range list {
		if err := ns.check(tokens); err != nil {
			wrong = append(wrong, err)
			continue
		}
		if slices.ContainsFunc(list[:i], func(before Namespace) bool { return before.Name == ns.Name }) {
			wrong = append(wrong, ns.wrong("the name is used twice: merge the rules, or rename one"))
		}
		ns = ns.withDefaults()
		all.add(&ns)
	}
	return all, errors.Join(wrong...)
}

func (all *namespaces) add(ns *Namespace) {
	prefix := ""
	if ns.Name == "" {
		all.none = ns
	} else {
		all.named[ns.Name] = ns
		prefix = ns.Name + ":"
	}
	if ns.Personal {
		all.personal = append(all.personal, prefix)
	}
}

// of returns the rules of the channel named name.
func (all *namespaces) of(channel string) *Namespace {
	if len(all.named) > 0 {
		if name, _, ok := strings.Cut(channel, ":"); ok {
			if ns := all.named[name]; ns != nil {
				return ns
			}
		}
	}
	return all.none
}

// knows reports whether there may be a channel of that name: see Namespace.KnownOnly.
func (all *namespaces) knows(channel string) bool {
	if !all.none.KnownOnly {
		return true
	}
	name, _, ok := strings.Cut(channel, ":")
	return !ok || all.named[name] != nil
}

// Retention returns what the bus keeps of the channels' publications.
func (ns Namespace) Retention() bus.Retention { return new(ns.withDefaults()).retention() }

// retention returns what the bus keeps of the channel's publications.
func (ns *Namespace) retention() bus.Retention {
	if ns.HistorySize == 0 {
		return bus.Retention{}
	}
	return bus.Retention{Size: ns.HistorySize, Age: ns.HistoryAge}
}

func (ns Namespace) withDefaults() Namespace {
	setDefault(&ns.HistoryAge, defaultAge)
	setDefault(&ns.SlowQueue, defaultSlowQueue)
	if ns.Publish == "" {
		ns.Publish = PublishClients
	}
	if ns.Slow == "" {
		ns.Slow = SlowDisconnect
	}
	if ns.ChannelRegex != "" {
		ns.regex, _ = regexp.Compile(ns.ChannelRegex) // check has reported an error
	}
	ns.UserLimited = ns.UserLimited || ns.Personal
	return ns
}

func (ns Namespace) check(tokens bool) error {
	switch {
	case len(ns.Name) > maxNamespaceName || strings.ContainsFunc(ns.Name, notInName):
		return ns.wrong(fmt.Sprintf("a name is 1 to %d letters, digits, '-', '_' and '.'", maxNamespaceName))
	case ns.HistorySize < 0 || ns.HistorySize > MaxHistorySize:
		return ns.wrong(fmt.Sprintf("history size %d: use 0 to %d", ns.HistorySize, MaxHistorySize))
	case ns.HistoryAge < 0:
		return ns.wrong(fmt.Sprintf("history age %v: use a positive one, or 0 for %v", ns.HistoryAge, defaultAge))
	case ns.HistoryAge > 0 && ns.HistorySize == 0:
		return ns.wrong("history age without history: give it a history size too")
	case ns.SlowQueue > 0 && ns.Slow != SlowDropOldest:
		return ns.wrong("slow queue without the policy that has one: set slow to drop-oldest too")
	case ns.Recovery && ns.HistorySize == 0:
		return ns.wrong("recovery without history: give it a history size too")
	case ns.PushJoinLeave && !ns.JoinLeave:
		return ns.wrong("notices of joins and leaves for all, without any: set join-leave too")
	case ns.SlowQueue < 0:
		return ns.wrong(fmt.Sprintf("slow queue of %d bytes: use a positive one, or 0 for %d", ns.SlowQueue,
			defaultSlowQueue))
	case ns.SubscribeToken && !tokens:
		return ns.wrong("subscribing needs a token, and there is no secret to check it: set a token secret too")
	case ns.Publish == PublishToken && !tokens:
		return ns.wrong("publishing needs a token, and there is no secret to check it: set a token secret too")
	}
	if !slices.Contains([]PublishRule{"", PublishClients, PublishSubscribers, PublishToken, PublishNobody},
		ns.Publish) {
		return ns.wrong(fmt.Sprintf("publish %q: use clients, subscribers, token or nobody", ns.Publish))
	}
	if !slices.Contains([]SlowPolicy{"", SlowDisconnect, SlowDropOldest, SlowLatestOnly}, ns.Slow) {
		return ns.wrong(fmt.Sprintf("slow %q: use disconnect, drop-oldest or latest-only", ns.Slow))
	}
	if ns.KnownOnly && ns.Name != "" {
		return ns.wrong("known-only is a rule of the namespace without a name")
	}
	if _, err := regexp.Compile(ns.ChannelRegex); err != nil {
		return ns.wrong("channel regex: " + err.Error())
	}
	return nil
}

func (ns Namespace) wrong(what string) error {
	return fmt.Errorf("push: namespace %q: %s", ns.Name, what)
}

func notInName(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.", r))
}

// all returns the rules of all namespaces, those of the namespace without a name first.
func (all *namespaces) all() []*Namespace {
	list := []*Namespace{all.none}
	for _, ns := range all.named {
		list = append(list, ns)
	}
	slices.SortFunc(list, func(a, b *Namespace) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// ErrNeedsRestart is the error of CheckNamespaces and Reload for namespaces that are valid, and to
// which a running server cannot change.
var ErrNeedsRestart = errors.New("push: restart the server for that")

// CheckNamespaces returns why a running server cannot change to c.Namespaces. Channels keep what
// they have from their rules while they have subscribers: the history, its age, recovery, join and
// leave notices, and the policy for slow subscribers. So these cannot change for any channel, and
// in a cluster all nodes must agree on histories.
func (s *Server) CheckNamespaces(c Config) error {
	_, err := s.nextRules(c)
	return err
}

// nextRules returns the rules of c.Namespaces, or those in use if that is nil.
func (s *Server) nextRules(c Config) (namespaces, error) {
	if c.Namespaces == nil {
		return *s.node.rules.Load(), nil
	}
	next, err := newNamespaces(c.Namespaces, s.node.tokens != nil)
	err = errors.Join(err, s.node.hooks.check(c.Namespaces), checkUsers(c.Namespaces, s.node.authenticates()))
	if err != nil {
		return next, err
	}
	now := s.node.rules.Load()
	names := maps.Clone(now.named)
	maps.Copy(names, next.named)
	for _, name := range append(slices.Sorted(maps.Keys(names)), "") {
		before, after := now.of(name+":"), next.of(name+":")
		if before.lasting() != after.lasting() {
			err = errors.Join(err, fmt.Errorf("push: namespace %q: the history, recovery, join-leave and slow rules "+
				"of its channels cannot change while the server runs: %w", name, ErrNeedsRestart))
		}
	}
	return next, err
}

// lastingRules are those that channels keep while they have subscribers.
type lastingRules struct {
	keep                bus.Retention
	recovery, joinLeave bool
	slow                SlowPolicy
	slowQueue           int
}

func (ns *Namespace) lasting() lastingRules {
	return lastingRules{ns.retention(), ns.Recovery, ns.JoinLeave, ns.Slow, ns.SlowQueue}
}
