package push

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Namespace is the rules of some channels: of those whose name begins with Namespace.Name and a
// colon, as "chat:room-7" is of "chat". The namespace without a name has all others, also those
// with a colon behind what names no namespace. The zero value is a namespace that keeps nothing,
// tells nothing, and lets every client subscribe and publish.
type Namespace struct {
	// Name is 1 to 64 letters, digits, '-', '_' and '.', or empty for the default namespace.
	Name string

	// HistorySize is how many of its last publications each channel keeps, in memory, at most
	// 65,536. 0: none. Subscribers may ask for them with the history command. Limits.HistoryBytes
	// and HistoryChannels bound what all channels keep together.
	HistorySize int
	// HistoryAge is how long a publication is kept, default 5 minutes. It has no meaning without
	// HistorySize.
	HistoryAge time.Duration
	// Recovery gives a subscriber that comes back what it has missed, as far as the history
	// reaches, and tells it whether that is all. It needs HistorySize. Every subscriber may
	// recover; the client libraries do so by themselves.
	Recovery bool

	// Presence lets subscribers ask who else is subscribed (presence and presence_stats).
	Presence bool
	// JoinLeave tells subscribers that have asked for it who comes and goes. A channel of n
	// subscribers costs n messages for each, so it is for small ones.
	JoinLeave bool

	// Publish says who of the clients may publish. The HTTP API always may. Default:
	// PublishClients. Config.DenyClientPublish overrides it.
	Publish PublishRule
	// SubscribeToken lets only clients subscribe that bring a token for the channel: a JWT like
	// that of the connection, with the same sub and with the claim channel. It needs
	// Config.TokenSecret.
	SubscribeToken bool

	// Slow is what happens when a subscriber does not read as fast as others publish. Default:
	// SlowDisconnect.
	Slow SlowPolicy
	// SlowQueue is how many bytes of one channel wait for one subscriber under SlowDropOldest,
	// default 64 KiB, before the oldest is dropped. Besides there are up to 64 KiB on the way to
	// the kernel, which nobody can take back. Under SlowDisconnect it is Limits.Queue that counts,
	// for all channels of a client together.
	SlowQueue int
}

// A PublishRule says which clients may publish to the channels of a Namespace. Others are answered
// 103 "permission denied".
type PublishRule string

const (
	PublishClients     PublishRule = "clients"     // every client that is connected
	PublishSubscribers PublishRule = "subscribers" // clients that are subscribed to the channel
	// those subscribed with a token for the channel whose claim allow has "pub"
	PublishToken  PublishRule = "token"
	PublishNobody PublishRule = "nobody" // none: channels are for subscribing only
)

// A SlowPolicy says what happens when a subscriber has not read what was published before.
type SlowPolicy string

const (
	// SlowDisconnect closes the connection with code 3008 "slow" when Limits.Queue bytes wait for
	// it. The client comes back, and recovers what it has missed where the namespace has Recovery.
	SlowDisconnect SlowPolicy = "disconnect"
	// SlowDropOldest keeps the last Namespace.SlowQueue bytes of the channel for the subscriber,
	// and drops what is older. The connection stays. What it gets is in order, with a gap.
	SlowDropOldest SlowPolicy = "drop-oldest"
	// SlowLatestOnly keeps the last publication of the channel for the subscriber: for states of
	// which only the last one counts.
	SlowLatestOnly SlowPolicy = "latest-only"
)

const (
	maxNamespaceName = 64
	maxHistorySize   = 1 << 16
	defaultAge       = 5 * time.Minute
	defaultSlowQueue = 64 << 10
)

// namespaces are those of a Config, checked and completed.
type namespaces struct {
	none  *Namespace // the one without a name
	named map[string]*Namespace
}

func newNamespaces(list []Namespace, tokens bool) (namespaces, error) {
	all := namespaces{none: new(Namespace{}.withDefaults()), named: make(map[string]*Namespace)}
	var wrong []error
	for i, ns := range list {
		if err := ns.check(tokens); err != nil {
			wrong = append(wrong, err)
			continue
		}
		if slices.ContainsFunc(list[:i], func(before Namespace) bool { return before.Name == ns.Name }) {
			wrong = append(wrong, ns.wrong("it is there twice: put its rules together, or give it another name"))
		}
		ns = ns.withDefaults()
		if ns.Name == "" {
			all.none = &ns
			continue
		}
		all.named[ns.Name] = &ns
	}
	return all, errors.Join(wrong...)
}

// of returns the rules of the channel of that name.
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

// retention is what the bus has to keep of a publication.
func (ns *Namespace) retention() Retention {
	if ns.HistorySize == 0 {
		return Retention{}
	}
	return Retention{Size: ns.HistorySize, Age: ns.HistoryAge}
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
	return ns
}

func (ns Namespace) check(tokens bool) error {
	switch {
	case len(ns.Name) > maxNamespaceName || strings.ContainsFunc(ns.Name, notInName):
		return ns.wrong(fmt.Sprintf("a name is 1 to %d letters, digits, '-', '_' and '.'", maxNamespaceName))
	case ns.HistorySize < 0 || ns.HistorySize > maxHistorySize:
		return ns.wrong(fmt.Sprintf("history size %d: use 0 to %d", ns.HistorySize, maxHistorySize))
	case ns.HistoryAge < 0:
		return ns.wrong(fmt.Sprintf("history age %v: use a positive one, or 0 for %v", ns.HistoryAge, defaultAge))
	case ns.Recovery && ns.HistorySize == 0:
		return ns.wrong("recovery without history: give it a history size too")
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
	return nil
}

func (ns Namespace) wrong(what string) error {
	return fmt.Errorf("push: namespace %q: %s", ns.Name, what)
}

func notInName(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.", r))
}
