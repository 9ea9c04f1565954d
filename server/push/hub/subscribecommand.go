package hub

import (
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/policy"
)

// A SubscribeCommand is what a client requests when it subscribes.
type SubscribeCommand struct {
	Recover   bool
	Since     bus.Position
	Complete  bool              // refuse the subscription if not everything can be recovered
	Delta     bool              // the client can apply deltas
	Filter    *policy.TagFilter // selects publications; nil: all
	JoinLeave bool
	server    bool   // the server makes the subscription, which needs no token
	Token     string // for the subscription; usually ""
	Data      []byte // for a hook

	pushed       bool // notices, also where the rules have none
	unpositioned bool // the client gets no position, also where the rules have recovery

	grant *memberGrant // what the token grants; nil without one
	ttl   uint32       // seconds until the token ends
	// answer is data for the reply, from a hook.
	answer []byte
}

// ShowInfo makes others see info, which is JSON, of the client in the channel.
func (w *SubscribeCommand) ShowInfo(info []byte) { w.grant = &memberGrant{info: info} }

// A memberGrant is what the token for a subscription allows.
type memberGrant struct {
	info    []byte // JSON, or nil
	publish bool
	hooked  bool // Hooks.Subscribe has allowed the subscription
	absent  bool // the member is left out of presence
	renewed bool // the client sends a new token when this one has expired
	spared  bool // it has its time for that once more; the session's mu guards it
	// announced says whether joins and leaves are announced; nil: as the channel's rules say.
	announced *bool
	// expires is the end of the token plus the time to renew it, in nanoseconds since 1970; 0:
	// never. The session's mu guards it.
	expires int64
}

// Override are rules for some subscriptions that differ from those of the namespace. nil: as the
// namespace says.
type Override struct {
	Presence           *bool // the clients are in the channel's presence
	JoinLeave          *bool // others are told when they join and leave
	ForceRecovery      *bool // the clients recover what they miss
	ForcePositioning   *bool // the clients are told when they have missed something
	ForcePushJoinLeave *bool // the clients are told when others join and leave
}

// or returns the value of a rule in an Override, or that of the namespace if it has none.
func or(value *bool, rule bool) bool {
	if value == nil {
		return rule
	}
	return *value
}

// GrantByServer sets what a subscription has that the server makes. info is JSON that others see,
// and data is for the client. The subscription ends at expireAt, in seconds since 1970; 0: never. o
// replaces rules of the channel; nil: none.
func (w *SubscribeCommand) GrantByServer(info, data []byte, expireAt int64, o *Override) {
	w.answer = data
	if info == nil && expireAt == 0 && o == nil {
		return
	}
	w.grant = &memberGrant{info: info, expires: expireAt * int64(time.Second)}
	if o == nil {
		return
	}
	w.grant.absent = !or(o.Presence, true)
	w.grant.announced = o.JoinLeave
	w.pushed = or(o.ForcePushJoinLeave, false)
	w.unpositioned = !or(o.ForceRecovery, true) && !or(o.ForcePositioning, false)
}

// A Welcome is the content of the reply to a new member.
type Welcome struct {
	Recoverable   bool
	At            bus.Position // the member gets the publications after it
	WasRecovering bool
	Recovered     bool
	Publications  []bus.Publication
	Delta         bool // publications may be deltas
	Data          []byte

	Expires bool   // the subscription ends in TTL seconds unless the client brings a new token
	TTL     uint32 // in seconds; 0 unless Expires
}
