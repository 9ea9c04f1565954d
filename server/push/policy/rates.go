package policy

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Rates limit how often each user, and each client's address, may do something: token buckets that
// are full at first. The zero value limits nothing and costs nothing. A client above a limit is
// answered 111 "too many requests", which is temporary, or by HTTP with status 429 and Retry-After.
// An IPv6 address counts with all others of its /64. Clients of unix sockets have no address.
type Rates struct {
	// Connections, Subscriptions and Publications are for clients: by user, if the client has one,
	// and by address. What a token, a hook or the API subscribes to is not counted.
	UserConnections, AddressConnections     Rate
	UserSubscriptions, AddressSubscriptions Rate
	UserPublications, AddressPublications   Rate
	// Commands are those that make the server look something up, or call a program: history,
	// presence, rpc, refresh and their like. A message (send) above the limit is dropped, because
	// it has no reply.
	UserCommands, AddressCommands Rate
	// AddressCalls are requests to the HTTP API, and to the Mercure hub for publications and lists
	// of subscriptions. A batch is one.
	AddressCalls Rate
}

// A Rate is a number of events in a time. They may come at once; then each event takes its part of
// the time to be free again. The zero value is no limit.
type Rate struct {
	Count int
	Per   time.Duration
}

// maxBuckets bounds the users or addresses that one limit remembers. At the bound a new one takes
// the place of another, which then has a full bucket.
const maxBuckets = 100_000

// Limiters apply Rates, which Set replaces. Any goroutine may use them. The zero value limits
// nothing.
type Limiters struct{ current atomic.Pointer[limiters] } // nil without any

// limiters have the buckets of one Rates.
type limiters struct {
	userConnections, addressConnections     limiter
	userSubscriptions, addressSubscriptions limiter
	userPublications, addressPublications   limiter
	userCommands, addressCommands           limiter
	addressCalls                            limiter
}

// Set begins again, with r and full buckets.
func (l *Limiters) Set(r Rates) {
	if r == (Rates{}) {
		l.current.Store(nil)
		return
	}
	l.current.Store(&limiters{
		userConnections: limiter{rate: r.UserConnections}, userSubscriptions: limiter{rate: r.UserSubscriptions},
		userPublications: limiter{rate: r.UserPublications}, addressConnections: limiter{rate: r.AddressConnections},
		addressSubscriptions: limiter{rate: r.AddressSubscriptions},
		userCommands:         limiter{rate: r.UserCommands}, addressCommands: limiter{rate: r.AddressCommands},
		addressPublications: limiter{rate: r.AddressPublications}, addressCalls: limiter{rate: r.AddressCalls},
	})
}

// An Act is what a client does that Rates limit by its user and by its address.
type Act uint8

const (
	Subscribing Act = iota
	Publishing
	Commanding // any other command that makes the server look something up, or call a program
)

// Take counts an act of a client, and returns how long the client has to wait. 0: it may act now.
func (l *Limiters) Take(what Act, user, remote string, now time.Time) (wait time.Duration) {
	r := l.current.Load()
	switch {
	case r == nil:
		return 0
	case what == Subscribing:
		return r.take(&r.userSubscriptions, &r.addressSubscriptions, user, remote, now)
	case what == Publishing:
		return r.take(&r.userPublications, &r.addressPublications, user, remote, now)
	}
	return r.take(&r.userCommands, &r.addressCommands, user, remote, now)
}

// Connect counts that the user connects, and returns how long it has to wait. 0: it may now. Of
// many that are refused, as of Open and Call, each is told a time at which there is room for one.
func (l *Limiters) Connect(user string, now time.Time) (wait time.Duration) {
	if r := l.current.Load(); r != nil {
		return r.userConnections.advise(user, now)
	}
	return 0
}

// Open counts a connection from that address, and returns how long it has to wait. 0: it may now.
func (l *Limiters) Open(remote string, now time.Time) (wait time.Duration) {
	if r := l.current.Load(); r != nil {
		return r.addressConnections.advise(addressKey(remote), now)
	}
	return 0
}

// Call counts a call of the API from that address, and returns how long it has to wait. 0: it may
// now.
func (l *Limiters) Call(remote string, now time.Time) (wait time.Duration) {
	if r := l.current.Load(); r != nil {
		return r.addressCalls.advise(addressKey(remote), now)
	}
	return 0
}

// Check returns an error for a rate that no limiter can apply.
func (r Rates) Check() error {
	for _, one := range []Rate{r.UserConnections, r.AddressConnections, r.UserSubscriptions, r.AddressSubscriptions,
		r.UserPublications, r.AddressPublications, r.UserCommands, r.AddressCommands, r.AddressCalls} {
		if one.Count < 0 || one.Per < 0 || (one.Count == 0) != (one.Per == 0) || one.Count > int(one.Per) {
			return fmt.Errorf("push: a rate of %v: use a positive count and time, at most one a nanosecond", one)
		}
	}
	return nil
}

// A limiter has a bucket for each key. A bucket is the time at which it is full again, in
// nanoseconds since 1970 (the generic cell rate algorithm); a full bucket needs no entry.
type limiter struct {
	rate Rate

	mu   sync.Mutex
	full map[string]int64
	told map[string]int64 // the time that advise has told last, for keys that were refused
}

// longestAdvice bounds how much longer than it has to a key is told to wait.
const longestAdvice = time.Minute

// advise is take for clients that come back after wait. If many of one key are refused, the next
// one is told the time of the next event in the bucket. Above longestAdvice the times begin again.
func (l *limiter) advise(key string, now time.Time) (wait time.Duration) {
	if wait = l.take(key, now); wait == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	first := now.Add(wait).UnixNano()
	next := max(first, l.told[key]+int64(l.rate.Per)/int64(l.rate.Count))
	if next-first > int64(longestAdvice) {
		next = first
	}
	l.tell(key, next)
	return time.Duration(next - now.UnixNano())
}

// tell notes the time that a client was told. The caller holds l.mu.
func (l *limiter) tell(key string, at int64) {
	if l.told == nil || len(l.told) >= maxBuckets {
		l.told = make(map[string]int64)
	}
	l.told[key] = at
}

// take takes one event from the bucket of key. Without one, wait is the time until there is one.
func (l *limiter) take(key string, now time.Time) (wait time.Duration) {
	if l.rate.Count == 0 || key == "" {
		return 0
	}
	each := int64(l.rate.Per) / int64(l.rate.Count)
	at := now.UnixNano()
	l.mu.Lock()
	defer l.mu.Unlock()
	full, known := l.full[key]
	if next := max(full, at) + each; next-at <= int64(l.rate.Per) {
		if !known {
			l.makeRoom(at)
		}
		l.full[key] = next
		return 0
	}
	return time.Duration(full + each - int64(l.rate.Per) - at)
}

// makeRoom deletes full buckets, and another one if none of the first few is full. The caller holds
// l.mu.
func (l *limiter) makeRoom(now int64) {
	if l.full == nil {
		l.full = make(map[string]int64)
	}
	if len(l.full) < maxBuckets {
		return
	}
	const looked = 16
	seen := 0
	for key, full := range l.full { // in random order
		if seen++; full <= now || seen == looked {
			delete(l.full, key)
		}
		if seen == looked {
			return
		}
	}
}

// addressKey returns the key of a client's address and port; "": it has none.
func addressKey(remote string) string {
	a, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	ip := a.Addr().Unmap()
	if ip.Is4() {
		return ip.String()
	}
	prefix, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return ""
	}
	return prefix.String()
}

// take takes one event of a client from both buckets. If the second has none, the first has lost
// one: the client has tried.
func (r *limiters) take(user, address *limiter, who, remote string, now time.Time) (wait time.Duration) {
	if user.rate.Count > 0 {
		wait = user.take(who, now)
	}
	if wait == 0 && address.rate.Count > 0 {
		wait = address.take(addressKey(remote), now)
	}
	return wait
}

// String returns the rate in words.
func (r Rate) String() string { return fmt.Sprintf("%d in %v", r.Count, r.Per) }
