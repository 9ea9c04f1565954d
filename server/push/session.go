package push

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// A transport carries encoded messages to one client. Its methods may be called from any goroutine
// and at the same time; they never block and never call the session back from within. When the
// connection has ended, for whatever reason, the transport calls session.ended, once.
type transport interface {
	// send queues m, whole, in the order of the calls. m is borrowed: its payload is copied, its
	// shared form is queued by reference. errFull says that the transport's own limit is reached;
	// any other error, that the connection has ended.
	send(m *message) error
	// queued is how many bytes wait to be taken by the kernel.
	queued() int
	// close sends what is queued, says goodbye in the way of the transport and ends the connection.
	// For centrifuge.Slow it may drop what is queued. A peer that does not read holds it up for a
	// bounded time only. Only the first call counts.
	close(d centrifuge.Disconnect)
}

// A session is one client, over any transport. It has no goroutine: what a client sends comes in
// through frame, which the transport calls one at a time; time comes through tick, from the wheel;
// publications come through offer, from channels.
//
// mu guards what is written below it. It may be taken with locks of the bus held, so under it only
// the wheel's is taken.
type session struct {
	node *node
	t    transport
	id   clientID
	wire wire

	slot  int16 // the wheel's
	place int32

	watcher bool        // an operator's, in the console: it receives, and no one else is told of it
	leaving atomic.Bool // a disconnect is under way, or over

	mu      sync.Mutex
	stage   stage
	lagging bool      // something waits for it in its channels: see slow.go
	who     *identity // what its token says; nil: it had none. It does not change once the session is connected
	members []*member
	pingAt  int64 // when to ping next, in nanoseconds since the epoch; 0: never
	pongBy  int64 // when an answer to the last ping must have come; 0: none is waited for
	endAt   int64 // when its stage, or its token with the time to renew it, is over; 0: never
}

// An identity is what the token of a connection says.
type identity struct {
	user     string
	info     []byte   // JSON, or nil
	channels []string // those to which it may subscribe without another token
	subsEnd  int64    // when the first of the tokens for subscriptions is over; 0: never. Guarded by the session's mu
}

// user is the name in the token, or empty.
func (s *session) user() string {
	if s.who == nil {
		return ""
	}
	return s.who.user
}

type stage uint8

const (
	stageNew       stage = iota // no connect command yet
	stageRefused                // connect was answered with an error: only going away is left
	stageConnected              //
	stageEnded                  // the transport has ended; nothing happens any more
)

const notInWheel = -1

// queueSlack is how much more than Limits.Queue a transport must hold before it is full: room for
// what stands around messages.
const queueSlack = 64 << 10

// start gives a client whose connection has just opened to the node. Until it connects it can do
// nothing else.
func (n *node) start(t transport, w wire) *session {
	return n.begin(&session{node: n, t: t, id: n.newClientID(), wire: w, slot: notInWheel})
}

// begin is start for a session that is made.
func (n *node) begin(s *session) *session {
	n.sessions.Add(1)
	n.count.connections.Add(s.counted())
	s.mu.Lock()
	s.endAt = n.clock.Now().Add(n.timing.Connect).UnixNano()
	n.wheel.set(s, s.endAt)
	s.mu.Unlock()
	if n.isDraining() {
		s.disconnect(centrifuge.Shutdown)
	}
	return s
}

// admit makes s connected, as the user of g, or as nobody when g is zero. The caller holds s.mu.
func (s *session) admit(g grant) {
	now := s.node.clock.Now()
	s.stage = stageConnected
	if g.user != "" {
		s.who = &identity{user: g.user, info: g.info, channels: g.channels}
	}
	s.pingAt = now.Add(s.node.firstPing()).UnixNano()
	s.endAt = 0
	if !g.ends.IsZero() {
		s.expireAt(g.ends)
	}
	s.node.wheel.set(s, s.deadline())
}

// expireAt sets the end of the token. The caller holds s.mu and sets the wheel.
func (s *session) expireAt(ends time.Time) {
	if s.wire == wireCentrifuge {
		ends = ends.Add(s.node.timing.Refresh)
	}
	s.endAt = sinceEpoch(ends)
}

// sinceEpoch is t in nanoseconds since the epoch. They reach to the year 2262; a token may say that
// it lasts longer, and then Sub stops at the largest number, where UnixNano would begin again at
// the smallest.
func sinceEpoch(t time.Time) int64 { return int64(t.Sub(time.Unix(0, 0))) }

// offer queues a message. It does not take s.mu. A client that has read everything may get a
// message of any size.
func (s *session) offer(m *message) offered {
	if s.leaving.Load() {
		return offerGone
	}
	if queued := s.t.queued(); queued > 0 && queued+len(m.payload) > s.node.limits.Queue {
		return offerFull
	}
	switch s.t.send(m) {
	case nil:
		return offerTaken
	case errFull:
		return offerFull
	}
	return offerGone // the transport has ended and is about to say so
}

type offered uint8

const (
	offerTaken offered = iota
	offerFull
	offerGone
)

// tooSlow disconnects a client that had no room for a message of the channel of that name, or for a
// reply if it is empty.
func (s *session) tooSlow(channel string) {
	queued := s.t.queued()
	if !s.disconnect(centrifuge.Slow) {
		return
	}
	s.node.count.slow.Add(1)
	s.node.slowest.add(slowDisconnect{At: s.node.clock.Now(), Client: s.id.String(), User: s.user(), Channel: channel,
		Queued: queued})
	s.node.log.Warn("push: disconnected a slow client", "client", s.id.String(), "user", s.user(), "channel", channel,
		"queued_bytes", queued, "limit_bytes", s.node.limits.Queue)
}

// tick does what has become due, and sets the wheel to what comes next.
func (s *session) tick(now time.Time) {
	reason, todo := s.due(now.UnixNano())
	if reason.Code != 0 {
		s.disconnect(reason)
		return
	}
	if todo&doPing != 0 {
		s.ping()
	}
	if todo&doExpire != 0 {
		s.expireSubscriptions(now.UnixNano())
	}
	if todo&doCatchUp != 0 {
		s.catchUp()
	}
}

// todo is what a tick has to do besides disconnecting.
type todo uint8

const (
	doPing todo = 1 << iota
	doExpire
	doCatchUp
)

// due tells what tick has to do: disconnect for that reason, or something else, or nothing.
func (s *session) due(now int64) (reason centrifuge.Disconnect, do todo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage == stageEnded {
		return reason, 0
	}
	switch {
	case s.leaving.Load():
		// Its transport ends it; until then it stays in the wheel, as one that lives.
		s.node.wheel.set(s, now+int64(s.node.timing.Ping))
		return reason, 0
	case s.pongBy != 0 && now >= s.pongBy:
		reason = centrifuge.NoPong
	case s.endAt != 0 && now >= s.endAt:
		reason = centrifuge.Expired
		if s.stage != stageConnected {
			reason = centrifuge.Stale
		}
	case s.pingAt != 0 && now >= s.pingAt:
		do |= doPing
		s.pingAt = now + int64(s.node.timing.Ping)
		if s.wire == wireCentrifuge {
			s.pongBy = now + int64(s.node.timing.Pong)
		}
	}
	if s.who != nil && s.who.subsEnd != 0 && now >= s.who.subsEnd {
		do |= doExpire
		s.who.subsEnd = 0
	}
	if s.lagging {
		do |= doCatchUp
	}
	s.node.wheel.set(s, max(s.deadline(), now))
	return reason, do
}

// deadline is the earliest. The caller holds s.mu.
func (s *session) deadline() int64 {
	first := int64(0)
	times := [...]int64{s.pingAt, s.pongBy, s.endAt, 0, 0}
	if s.who != nil {
		times[3] = s.who.subsEnd
	}
	if s.lagging {
		times[4] = s.node.clock.Now().UnixNano() + int64(wheelSlot)
	}
	for _, at := range times {
		if at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

func (s *session) ping() {
	if s.offer(s.node.pings[s.wire]) == offerFull {
		s.tooSlow("")
	}
}

// disconnect ends the connection for that reason. It returns false if another reason came first. It
// may be called from anywhere, also from within Receive: the session leaves its channels when the
// transport reports its end.
func (s *session) disconnect(d centrifuge.Disconnect) bool {
	if s.leaving.Swap(true) {
		return false
	}
	s.t.close(d)
	return true
}

// ended is called by the transport when the connection is over, exactly once and never from within
// Receive.
func (s *session) ended() {
	s.leaving.Store(true)
	s.mu.Lock()
	members := s.members
	s.stage, s.members = stageEnded, nil
	s.node.wheel.remove(s)
	s.mu.Unlock()
	for _, m := range members {
		s.node.hub.leave(m)
	}
	s.node.gone(s)
}

// counted is what the session adds to counts of clients, subscribers and messages.
func (s *session) counted() int64 {
	if s.watcher {
		return 0
	}
	return 1
}
