package push

import (
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/myriad-go/myriad/server/push/answer"
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

// rates are the limits in use. Any goroutine may use them.
type rates struct {
	userConnections, addressConnections     limiter
	userSubscriptions, addressSubscriptions limiter
	userPublications, addressPublications   limiter
	userCommands, addressCommands           limiter
	addressCalls                            limiter
}

func newRates(r Rates) *rates {
	if r == (Rates{}) {
		return nil
	}
	return &rates{
		userConnections: limiter{rate: r.UserConnections}, userSubscriptions: limiter{rate: r.UserSubscriptions},
		userPublications: limiter{rate: r.UserPublications}, addressConnections: limiter{rate: r.AddressConnections},
		addressSubscriptions: limiter{rate: r.AddressSubscriptions},
		userCommands:         limiter{rate: r.UserCommands}, addressCommands: limiter{rate: r.AddressCommands},
		addressPublications: limiter{rate: r.AddressPublications}, addressCalls: limiter{rate: r.AddressCalls},
	}
}

func (r Rates) check() error {
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
func (r *rates) take(user, address *limiter, who, remote string, now time.Time) (wait time.Duration) {
	if user.rate.Count > 0 {
		wait = user.take(who, now)
	}
	if wait == 0 && address.rate.Count > 0 {
		wait = address.take(addressKey(remote), now)
	}
	return wait
}

// MaySubscribeNow returns an Error if the client has subscribed too often.
func (s *Session) MaySubscribeNow() error {
	return s.mayNow("subscribe", func(r *rates) (user, address *limiter) {
		return &r.userSubscriptions, &r.addressSubscriptions
	})
}

// mayPublishNow returns an Error if the client has published too often.
func (s *Session) mayPublishNow() error {
	return s.mayNow("publish", func(r *rates) (user, address *limiter) {
		return &r.userPublications, &r.addressPublications
	})
}

// MayCommandNow returns an Error if the client has sent too many other commands.
func (s *Session) MayCommandNow(what string) error {
	return s.mayNow(what, func(r *rates) (user, address *limiter) { return &r.userCommands, &r.addressCommands })
}

// mayNow takes an event of the client from its buckets. The error is for the client.
func (s *Session) mayNow(what string, buckets func(*rates) (user, address *limiter)) error {
	r := s.node.rates.Load()
	if r == nil || s.watcher {
		return nil
	}
	user, address := buckets(r)
	return s.within(r.take(user, address, s.User(), s.t.Remote(), s.node.clock.Now()), what)
}

func (s *Session) within(wait time.Duration, what string) error {
	if wait == 0 {
		return nil
	}
	s.Refused(RefusedRate, fmt.Errorf("%s: %w", what, ErrTooManyRequests))
	return ErrTooManyRequests
}

// mayConnectNow returns how long the user has to wait; 0: it may connect.
func (n *node) mayConnectNow(user string) time.Duration {
	r := n.rates.Load()
	if r == nil {
		return 0
	}
	return r.userConnections.take(user, n.clock.Now())
}

// LimitConnections answers 429 to addresses that open connections too often.
func (s *Server) LimitConnections(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if limits := s.node.rates.Load(); limits != nil && r.Method != http.MethodOptions {
			if wait := limits.addressConnections.take(addressKey(r.RemoteAddr), s.node.clock.Now()); wait > 0 {
				s.RefuseRate(w, r, wait)
				return
			}
		}
		next(w, r)
	}
}

// MayCallNow reports whether the address may call the API, or answers 429.
func (s *Server) MayCallNow(w http.ResponseWriter, r *http.Request) bool {
	wait := s.CountCall(r)
	if wait > 0 {
		s.RefuseRate(w, r, wait)
	}
	return wait == 0
}

// countCall counts a call of the API, and returns how long the address has to wait. 0: it may call
// now.
func (s *Server) CountCall(r *http.Request) time.Duration {
	limits := s.node.rates.Load()
	if limits == nil {
		return 0
	}
	return limits.addressCalls.take(addressKey(r.RemoteAddr), s.node.clock.Now())
}

// RefuseRate answers 429 (RFC 6585 §4) with the seconds to wait (RFC 9110 §10.2.3).
func (s *Server) RefuseRate(w http.ResponseWriter, r *http.Request, wait time.Duration) {
	s.node.refusedRequest(RefusedRate, r)
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	answer.WriteError(w, http.StatusTooManyRequests, ErrTooManyRequests.Code, ErrTooManyRequests.Message)
}

// String returns the rate in words.
func (r Rate) String() string { return fmt.Sprintf("%d in %v", r.Count, r.Per) }
