// Package policy is what is allowed in channels, and how often: the rules of namespaces, what a
// client has shown that counts for them, filters of publications, and rates. It needs no server.
//
// namespace.go has the rules, and the table of all of them; access.go says what they and a client's
// token allow; explain.go says why. rates.go counts what users and addresses do. tagfilter.go and
// glob.go select publications and channels.
package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/myriad-go/myriad/server/push/answer"

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

// Namespaces are those of a configuration, checked, with defaults filled in.
type Namespaces struct {
	none  *Namespace // the namespace without a name
	named map[string]*Namespace

	personal []string // what precedes # in the names of personal channels
}

// A Table has the rules of all channels. Any goroutine may use it. The fields do not change.
type Table struct {
	LongestName       int  // of a channel, in bytes
	DenyClientPublish bool // to all channels

	current atomic.Pointer[Namespaces]
}

// Set replaces the namespaces.
func (t *Table) Set(all Namespaces) { t.current.Store(&all) }

// Namespaces returns those in use.
func (t *Table) Namespaces() Namespaces { return *t.current.Load() }

// Of returns the rules of the channel named name. They are not changed; after Set, Of may return
// others.
func (t *Table) Of(channel string) *Namespace { return t.current.Load().of(channel) }

// All returns the rules of all namespaces, those of the namespace without a name first.
func (t *Table) All() []*Namespace { return t.current.Load().all() }

// Knows reports whether there may be a channel of that name: see Namespace.KnownOnly.
func (t *Table) Knows(channel string) bool { return t.current.Load().knows(channel) }

// Errors of Check, and of a client that names a channel which ChannelRegex refuses.
var (
	ErrBadChannel = fmt.Errorf("push: the name of a channel is empty, too long, not UTF-8, or has control "+
		"characters: %w", answer.ErrBadRequest)
	errUnknownChannel = fmt.Errorf("push: the part of the channel's name before the colon names no namespace, and the "+
		"rule known-only refuses that: %w", answer.ErrUnknownChannel)
	ErrBadName = fmt.Errorf("push: the name of the channel does not match the channel regex of its namespace: %w",
		answer.ErrBadRequest)
)

// IsName reports whether name is that of a channel: UTF-8 without control characters, because names
// appear in logs, text frames and lines of SSE. encoding/json replaces bytes that are not UTF-8 by
// the replacement character, so that character is invalid, too.
func (t *Table) IsName(name string) bool {
	if name == "" || len(name) > t.LongestName {
		return false
	}
	for _, r := range name {
		if r < 0x20 || r == 0x7f || r == utf8.RuneError {
			return false
		}
	}
	return true
}

// Check returns ErrBadChannel for a name that no channel has, and another error for one that
// Namespace.KnownOnly refuses.
func (t *Table) Check(name string) error {
	if !t.IsName(name) {
		return ErrBadChannel
	}
	return t.CheckKnown(name)
}

// CheckKnown is Check for a name that a client may not make known by the answer.
func (t *Table) CheckKnown(name string) error {
	if !t.Knows(name) {
		return errUnknownChannel
	}
	return nil
}

// WhyNot says why Check refuses the name, in a sentence about subject.
func (t *Table) WhyNot(subject, name string) string {
	if t.IsName(name) {
		return subject + " is of a namespace without rules, which the rule known-only refuses"
	}
	return fmt.Sprintf("%s is not a name of 1 to %d bytes of UTF-8 without control characters", subject, t.LongestName)
}

// NewNamespaces checks the namespaces. tokens says that clients' tokens are checked.
func NewNamespaces(list []Namespace, tokens bool) (Namespaces, error) {
	all := Namespaces{none: new(Namespace{}.withDefaults()), named: make(map[string]*Namespace)}
	var wrong []error
	for i, ns := range list {
		if err := ns.check(tokens); err != nil {
			wrong = append(wrong, err)
			continue
		}
		if slices.ContainsFunc(list[:i], func(before Namespace) bool { return before.Name == ns.Name }) {
			wrong = append(wrong, ns.Wrong("the name is used twice: merge the rules, or rename one"))
		}
		ns = ns.withDefaults()
		all.add(&ns)
	}
	return all, errors.Join(wrong...)
}

func (all *Namespaces) add(ns *Namespace) {
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
func (all *Namespaces) of(channel string) *Namespace {
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
func (all *Namespaces) knows(channel string) bool {
	if !all.none.KnownOnly {
		return true
	}
	name, _, ok := strings.Cut(channel, ":")
	return !ok || all.named[name] != nil
}

// Retention returns what the bus keeps of the channels' publications.
func (ns *Namespace) Retention() bus.Retention {
	if ns.HistorySize == 0 {
		return bus.Retention{}
	}
	return bus.Retention{Size: ns.HistorySize, Age: cmp.Or(ns.HistoryAge, defaultAge)}
}

func (ns Namespace) withDefaults() Namespace {
	if ns.HistoryAge <= 0 {
		ns.HistoryAge = defaultAge
	}
	if ns.SlowQueue <= 0 {
		ns.SlowQueue = defaultSlowQueue
	}
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
		return ns.Wrong(fmt.Sprintf("a name is 1 to %d letters, digits, '-', '_' and '.'", maxNamespaceName))
	case ns.HistorySize < 0 || ns.HistorySize > MaxHistorySize:
		return ns.Wrong(fmt.Sprintf("history size %d: use 0 to %d", ns.HistorySize, MaxHistorySize))
	case ns.HistoryAge < 0:
		return ns.Wrong(fmt.Sprintf("history age %v: use a positive one, or 0 for %v", ns.HistoryAge, defaultAge))
	case ns.HistoryAge > 0 && ns.HistorySize == 0:
		return ns.Wrong("history age without history: give it a history size too")
	case ns.SlowQueue > 0 && ns.Slow != SlowDropOldest:
		return ns.Wrong("slow queue without the policy that has one: set slow to drop-oldest too")
	case ns.Recovery && ns.HistorySize == 0:
		return ns.Wrong("recovery without history: give it a history size too")
	case ns.PushJoinLeave && !ns.JoinLeave:
		return ns.Wrong("notices of joins and leaves for all, without any: set join-leave too")
	case ns.SlowQueue < 0:
		return ns.Wrong(fmt.Sprintf("slow queue of %d bytes: use a positive one, or 0 for %d", ns.SlowQueue,
			defaultSlowQueue))
	case ns.SubscribeToken && !tokens:
		return ns.Wrong("subscribing needs a token, and there is no secret to check it: set a token secret too")
	case ns.Publish == PublishToken && !tokens:
		return ns.Wrong("publishing needs a token, and there is no secret to check it: set a token secret too")
	}
	if !slices.Contains([]PublishRule{"", PublishClients, PublishSubscribers, PublishToken, PublishNobody},
		ns.Publish) {
		return ns.Wrong(fmt.Sprintf("publish %q: use clients, subscribers, token or nobody", ns.Publish))
	}
	if !slices.Contains([]SlowPolicy{"", SlowDisconnect, SlowDropOldest, SlowLatestOnly}, ns.Slow) {
		return ns.Wrong(fmt.Sprintf("slow %q: use disconnect, drop-oldest or latest-only", ns.Slow))
	}
	if ns.KnownOnly && ns.Name != "" {
		return ns.Wrong("known-only is a rule of the namespace without a name")
	}
	if _, err := regexp.Compile(ns.ChannelRegex); err != nil {
		return ns.Wrong("channel regex: " + err.Error())
	}
	return nil
}

// Wrong returns an error about the namespace.
func (ns Namespace) Wrong(what string) error {
	return fmt.Errorf("push: namespace %q: %s", ns.Name, what)
}

func notInName(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.", r))
}

// all returns the rules of all namespaces, those of the namespace without a name first.
func (all *Namespaces) all() []*Namespace {
	list := []*Namespace{all.none}
	for _, ns := range all.named {
		list = append(list, ns)
	}
	slices.SortFunc(list, func(a, b *Namespace) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// ErrNeedsRestart is the error of CheckChange for namespaces that are valid, and to
// which a running server cannot change.
var ErrNeedsRestart = errors.New("push: restart the server for that")

// CheckChange returns an ErrNeedsRestart if a running server cannot change to next. Channels keep
// what they have from their rules while they have subscribers, and in a cluster all nodes must
// agree on histories.
func (all *Namespaces) CheckChange(next *Namespaces) (err error) {
	return all.lasting().CheckChange(next)
}

// LastingRules are what channels keep of the rules while they have subscribers, by the names of
// namespaces. The one without a name has all others.
type LastingRules map[string]lastingRules

// lasting returns what channels keep of all.
func (all *Namespaces) lasting() LastingRules {
	rules := LastingRules{"": all.of(":").lasting()}
	for name := range all.named {
		rules[name] = all.of(name + ":").lasting()
	}
	return rules
}

// CheckChange returns why next cannot take the place of the rules: some of them cannot change for
// channels that have subscribers.
func (r LastingRules) CheckChange(next *Namespaces) (err error) {
	after := next.lasting()
	names := maps.Clone(r)
	maps.Copy(names, after)
	for _, name := range append(slices.Sorted(maps.Keys(names))[1:], "") {
		if r.of(name) != after.of(name) {
			err = errors.Join(err, fmt.Errorf("push: namespace %q: the history, recovery, join-leave and slow rules "+
				"of its channels cannot change while the server runs: %w", name, ErrNeedsRestart))
		}
	}
	return err
}

// of returns the rules of the namespace of that name, which is that without a name if there is
// none.
func (r LastingRules) of(name string) lastingRules {
	if rules, has := r[name]; has {
		return rules
	}
	return r[""]
}

// lastingRules are those that channels keep while they have subscribers.
type lastingRules struct {
	keep                bus.Retention
	recovery, joinLeave bool
	slow                SlowPolicy
	slowQueue           int
}

func (ns *Namespace) lasting() lastingRules {
	return lastingRules{ns.Retention(), ns.Recovery, ns.JoinLeave, ns.Slow, ns.SlowQueue}
}
