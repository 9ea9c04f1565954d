package hub

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/internal/retryafter"
	"github.com/myriad-go/myriad/server/push/internal/strict"
	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/answer"
)

// A Session is one client, over any transport. It has no goroutine. Its door calls the operations
// that the client asks for, one at a time. The wheel calls tick at deadlines. Channels call Offer
// with publications.
//
// mu guards the fields below it. A caller may hold locks of the bus when it takes mu. A holder of
// mu may take the wheel's lock and ask the transport what is queued, and no more.
type Session struct {
	hub *Hub
	t   Transport
	id  clientID

	formID formID // of its node's table of forms

	watcher bool // an operator's subscription in the console, which clients do not see
	wheelPlace
	flags atomic.Uint32 // isClosing and isHolding

	mu       sync.Mutex
	stage    stage
	hooked   bool      // a hook says when the connection ends
	lagging  bool      // a channel has queued publications for it: see slow.go
	spared   spared    // what the client has its time for once more, because this node is late
	identity *identity // of its token, nil without one; constant once the session is connected
	members  []*member
	deadlines
}

// A wheelPlace is where the wheel has a session. The wheel's lock guards it.
type wheelPlace struct {
	slot  int16
	place int32
}

// deadlines are those of a session, in nanoseconds since 1970; 0: there is none.
type deadlines struct {
	pingAt int64 // when to ping next
	pongBy int64 // when the answer to the last ping is due; timedByConn: the transport tells by NoAnswer
	endAt  int64 // the end of its stage, or of its token plus the time to renew it
}

// An identity is the content of a connection's token.
type identity struct {
	user string
	caps atomic.Pointer[policy.Capabilities] // nil without any

	info     atomic.Pointer[[]byte] // JSON; nil without any
	channels []string               // to which it may subscribe without another token
	// subsEnd is when the first of its subscriptions' tokens expires; 0: never. The session's mu
	// guards it.
	subsEnd int64
}

// show makes others see info of the client. nil changes nothing.
func (i *identity) show(info []byte) {
	if info != nil {
		i.info.Store(&info)
	}
}

// User returns the user in the token, or "" without a token.
func (s *Session) User() string {
	if s.identity == nil {
		return ""
	}
	return s.identity.user
}

type stage uint8

const (
	stageNew       stage = iota // no connect command yet
	stageRefused                // connect was answered with an error; the client can only disconnect
	stageConnected              //
	stageEnded                  // the transport has ended
)

// The places of a session in no slot of the wheel.
const (
	notInWheel = -1
	inSweep    = -2 // its tick is about to set it again
)

// The flags of a session.
const (
	isClosing = 1 << iota // Disconnect or Ended has been called
	isHolding             // messages wait behind the reply to connect: see held
)

// IsClosing reports whether Disconnect or Ended has been called. A door then need not go on with
// what it does for the client.
func (s *Session) IsClosing() bool { return s.flags.Load()&isClosing != 0 }

// Start begins a session of a client whose connection has just opened. Its first operation must be
// connect. from is what RequestInfo has returned, or nil for a client that has sent no HTTP
// request: hooks then learn the client's transport and protocol alone.
func (h *Hub) Start(t Transport, f Form, from *RequestInfo) *Session {
	id := h.random.newClientID()
	if h.callers.wanted {
		h.callers.add(id, from.caller(f))
	}
	return h.begin(t, f, id, false)
}

// StartConnected begins a session of a client that has shown who it is. from is that of Start.
func (h *Hub) StartConnected(t Transport, f Form, g Grant, from *RequestInfo) *Session {
	id := g.id
	if id == (clientID{}) {
		id = h.random.newClientID()
	}
	if h.callers.wanted {
		c := from.caller(f)
		c.Meta, c.values = g.meta, nil // which are for Connect
		h.callers.add(id, c)
	}
	s := h.begin(t, f, id, g.watcher)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setConnected(g)
	return s
}

// begin starts a session with that id, which hooks know.
func (h *Hub) begin(t Transport, f Form, id clientID, watcher bool) *Session {
	s := &Session{hub: h, t: t, id: id, formID: h.forms.idOf(f), watcher: watcher,
		wheelPlace: wheelPlace{slot: notInWheel}}
	h.sessions.add(s)
	return s
}

// setConnected makes s connected, as the user of g, or without a user if g is zero. The caller
// holds s.mu.
func (s *Session) setConnected(g Grant) {
	now := s.hub.clock.Now()
	s.stage = stageConnected
	s.hub.figures.connects.Add(1)
	s.hooked = g.Hooked
	if g.User != "" || g.Hooked || s.hub.hooks.Subscribe != nil {
		s.identity = &identity{user: g.User, channels: g.Channels}
		s.identity.show(g.info)
		if len(g.caps) > 0 {
			caps := g.caps // else g would be allocated for every client
			s.identity.caps.Store(&caps)
		}
	}
	s.pingAt = now.Add(s.hub.firstPing()).UnixNano()
	s.endAt = 0
	if !g.Ends.IsZero() {
		s.expireAt(g.Ends)
	}
	s.hub.wheel.set(s, s.deadline())
}

// expireAt sets the expiry of the token. The caller holds s.mu, and then sets the wheel.
func (s *Session) expireAt(ends time.Time) {
	s.spared &^= sparedToken
	if s.form().answered && !s.hooked {
		ends = ends.Add(s.hub.timing.Refresh)
	}
	s.endAt = sinceEpoch(ends)
}

// sinceEpoch returns t in nanoseconds since 1970. They reach the year 2262. A token may end later:
// then Sub saturates, while UnixNano would overflow.
func sinceEpoch(t time.Time) int64 { return int64(t.Sub(time.Unix(0, 0))) }

// Offer queues a message for the client. If nothing is queued for the client, the message may have
// any size. Any goroutine may call it. After OfferFull the caller calls TooSlow; after OfferGone
// there is nothing to do.
func (s *Session) Offer(m *Message) OfferResult {
	if flags := s.flags.Load(); flags != 0 {
		if flags&isClosing != 0 {
			return OfferGone
		}
		return s.offerHeld(m)
	}
	return s.offerNow(m)
}

func (s *Session) offerNow(m *Message) OfferResult {
	if queued := s.t.Queued(); queued > 0 && queued+len(m.Payload) > s.hub.limits.Queue {
		return OfferFull
	}
	switch s.t.Send(m) {
	case nil:
		return OfferTaken
	case ErrQueueFull:
		return OfferFull
	}
	return OfferGone // the connection has ended, and the door will call Ended
}

// OfferResult is what Offer has done with a message.
type OfferResult uint8

const (
	OfferTaken OfferResult = iota // the message is queued
	OfferFull                     // the queue has no room for it: the caller calls TooSlow
	OfferGone                     // the connection is closing or has ended: there is nothing to do
)

// TooSlow disconnects a client whose queue had no room for a message of channel. "" stands for a
// reply. size is that of the message, or of its largest publication, in bytes.
func (s *Session) TooSlow(channel string, size int) {
	queued := s.t.Queued()
	if !s.Disconnect(answer.DisconnectSlow) {
		return
	}
	s.hub.figures.slow.Add(1)
	s.hub.figures.slowest.add(SlowClient{At: s.hub.clock.Now(), Client: s.id.String(), User: s.User(), Channel: channel,
		Queued: queued})
	s.hub.log.Warn("push: disconnected a slow client", "client", s.id.String(), "user", s.User(), "channel", channel,
		"remote", s.t.Remote(), "queued_bytes", queued, "message_bytes", size, "limit_bytes", s.hub.limits.Queue)
}

// Tell queues a reply, or news of the client's subscriptions or of its connection. If there is no
// room, the client would not know what it has, so it is disconnected as slow. channel is for the
// log; "" stands for the connection. Any goroutine may call it, also while a publication is
// delivered.
func (s *Session) Tell(channel string, m *Message) {
	if s.Offer(m) == OfferFull {
		s.TooSlow(channel, len(m.Payload))
	}
}

// tick does what is due, and sets the wheel to the next deadline.
func (s *Session) tick(now time.Time) {
	reason, todo := s.due(now.UnixNano())
	if reason.Code != 0 {
		s.Disconnect(reason)
		return
	}
	if todo&doPing != 0 {
		s.ping()
	}
	if todo&doAwait != 0 {
		s.await()
	}
	if todo&doRefresh != 0 {
		s.hub.clock.AfterFunc(0, s.refreshByHook) // a hook may block
	}
	if todo&doExpire != 0 {
		s.expireSubscriptions(now.UnixNano())
	}
	if todo&doCatchUp != 0 {
		s.catchUp()
	}
}

// todo is a set of actions of a tick.
type todo uint8

const (
	doPing todo = 1 << iota
	doAwait
	doExpire
	doCatchUp
	doRefresh
)

// due returns what tick has to do: disconnect, if reason has a code, or the actions in do.
func (s *Session) due(now int64) (reason answer.Disconnect, do todo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage == stageEnded {
		return reason, 0
	}
	switch {
	case s.IsClosing():
		// It stays in the wheel until its transport has ended, because the wheel is the list of
		// sessions.
		s.hub.wheel.set(s, now+int64(s.hub.timing.Ping))
		return reason, 0
	case s.pongBy != 0 && now >= s.pongBy && s.askAgain(now):
		do |= doPing
	case s.pongBy != 0 && now >= s.pongBy && s.spare(now):
	case s.pongBy != 0 && now >= s.pongBy:
		reason = answer.DisconnectNoPong
	case s.endAt != 0 && now >= s.endAt && s.hooked && s.stage == stageConnected && s.hub.hooks.Refresh != nil:
		do |= doRefresh
		s.endAt = now + int64(s.hub.timing.Refresh) // if the hook does not answer
	case s.endAt != 0 && now >= s.endAt && (s.spareConnect(now) || s.spareRefresh(now)):
	case s.endAt != 0 && now >= s.endAt:
		reason = answer.DisconnectExpired
		if s.stage != stageConnected {
			reason = answer.DisconnectStale
		}
	case s.pingAt != 0 && now >= s.pingAt:
		s.hub.figures.pings.observe(time.Duration(now-s.pingAt) + s.hub.wheel.lateness.now)
		s.pingAt = now + int64(s.hub.timing.Ping)
		do |= s.duePing(now)
	}
	if s.identity != nil && s.identity.subsEnd != 0 && now >= s.identity.subsEnd {
		do |= doExpire
		s.identity.subsEnd = 0
	}
	if s.lagging {
		do |= doCatchUp
	}
	s.hub.wheel.set(s, max(s.deadline(), now))
	return reason, do
}

// deadline returns the earliest deadline, or 0 if there is none. The caller holds s.mu.
func (s *Session) deadline() int64 {
	first := int64(0)
	times := [...]int64{s.pingAt, s.pongBy, s.endAt, 0, 0}
	if s.identity != nil {
		times[3] = s.identity.subsEnd
	}
	if s.lagging {
		times[4] = s.hub.clock.Now().UnixNano() + int64(wheelSlot)
	}
	for _, at := range times {
		if at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// spared says for what a client has its time once more: of a node that is late, or after a move.
type spared uint8

const (
	sparedConnect spared = 1 << iota
	sparedAnswer         // to the last ping
	sparedToken          // a new one for the connection
	sparedSurplus        // it was pinged again, and may answer once more than the last ping asks for
	// the answer to the last ping may have been lost in a move: see askAgain. It is no part of a
	// state, because each move sets it anew.
	sparedLost

	sparedAll = uint64(sparedConnect | sparedAnswer | sparedToken | sparedSurplus)
)

// timedByConn is pongBy while the transport knows when the answer is due.
const timedByConn = math.MaxInt64

// duePing returns what to do about a ping that is due. No ping is queued behind one that is not
// answered: on a node that is late, pings would wait for pings. Nor is one queued behind other
// output if the form's pings need no answer, because that output keeps the connection open as well.
// The caller holds s.mu.
func (s *Session) duePing(now int64) todo {
	switch {
	case s.pongBy == timedByConn:
		return doAwait // for an answer that has come at the same time as the last deadline was set
	case s.pongBy != 0:
		return 0
	case !s.form().answered:
		if s.t.Queued() > 0 {
			return 0
		}
		return doPing
	}
	s.pongBy = now + int64(s.hub.timing.Pong)
	s.spared &^= sparedAnswer | sparedLost
	if _, ok := s.t.(AnswerTimer); ok {
		s.pongBy = timedByConn
	}
	return doPing | doAwait
}

// spare gives a client its time to answer once more. It does so if the ping may have left late, or
// if the answer may wait to be read. Only clients whose transport is no AnswerTimer need it. It
// reports false if the client has had that. The caller holds s.mu.
func (s *Session) spare(now int64) bool {
	pong := int64(s.hub.timing.Pong)
	if s.spared&sparedAnswer != 0 || s.t.Queued() == 0 && !s.hub.wheel.lateness.since(now-pong) {
		return false
	}
	s.spared |= sparedAnswer
	s.pongBy = now + pong
	return true
}

// askAgain gives a client that has moved its time to answer once more, and has it pinged again. A
// client whose commands come in requests of their own may have answered to the process that it has
// left, which has refused the request. Or the answer may be on its way, so two of them may come. It
// reports false if the client has not moved since its last ping. The caller holds s.mu.
func (s *Session) askAgain(now int64) bool {
	if s.spared&sparedLost == 0 {
		return false
	}
	s.spared = s.spared&^(sparedLost|sparedAnswer) | sparedSurplus
	s.pongBy = now + int64(s.hub.timing.Pong)
	return true
}

// spareConnect gives a client its time to connect once more, if its first command may wait to be
// read. It reports false if the client has had that, or is connected. The caller holds s.mu.
func (s *Session) spareConnect(now int64) bool {
	connect := int64(s.hub.timing.Connect)
	if s.stage != stageNew || s.spared&sparedConnect != 0 || !s.hub.wheel.lateness.since(now-connect) {
		return false
	}
	s.spared |= sparedConnect
	s.endAt = now + connect
	return true
}

// spareRefresh gives a client whose token has expired its time to send a new one once more, if that
// may wait to be read. It reports false if the client has had that, or sends none. The caller holds
// s.mu.
func (s *Session) spareRefresh(now int64) bool {
	refresh := int64(s.hub.timing.Refresh)
	if s.stage != stageConnected || s.hooked || !s.form().answered || s.spared&sparedToken != 0 ||
		!s.hub.wheel.lateness.since(now-refresh) {
		return false
	}
	s.spared |= sparedToken
	s.endAt = now + refresh
	return true
}

func (s *Session) ping() {
	s.Tell("", s.form().pings)
}

// await has the transport wait for the answer to a ping that has been queued. A transport that does
// not after all is judged by the wheel.
func (s *Session) await() {
	t, ok := s.t.(AnswerTimer)
	if !ok || t.AwaitAnswer() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pongBy == timedByConn && s.stage == stageConnected {
		s.pongBy = s.hub.clock.Now().UnixNano() + int64(s.hub.timing.Pong)
		s.hub.wheel.set(s, s.deadline())
	}
}

// NoAnswer disconnects a client that has not answered a ping in time. The door of an AnswerTimer
// calls it.
func (s *Session) NoAnswer() {
	s.mu.Lock()
	due := s.stage == stageConnected && s.pongBy == timedByConn
	s.mu.Unlock()
	if due {
		s.Disconnect(answer.DisconnectNoPong)
	}
}

// Disconnect closes the connection for that reason. It returns false if it was already closing. It
// may be called from anywhere, also while a publication is delivered: the session leaves its
// channels later, when the door calls Ended.
func (s *Session) Disconnect(why answer.Disconnect) bool {
	if s.flags.Or(isClosing)&isClosing != 0 {
		return false
	}
	if !s.watcher {
		s.hub.figures.ended.add(why)
	}
	why = s.hub.sendable(why)
	if f, ok := s.form().Form.(EventForm); ok && f.IsEvents() && why.Reconnects() && why != answer.DisconnectSlow {
		// without room, the client comes back after the time that it was told first
		_ = s.t.Send(&Message{Payload: retryafter.AppendRetry(nil, s.hub.ConnectLater())})
	}
	s.t.Close(why)
	return true
}

// Ended removes the session from the wheel and its channels. The door calls it exactly once, after
// the connection has ended for any reason, and never from within a method of its Transport.
func (s *Session) Ended() { s.finish(s.hub.channels.leave) }

// finish removes the session from the wheel, and calls leave for each of its subscriptions.
func (s *Session) finish(leave func(*member)) {
	s.flags.Or(isClosing)
	s.mu.Lock()
	members := s.members
	s.hub.held.drop(s)
	s.stage, s.members = stageEnded, nil
	s.hub.wheel.remove(s)
	s.mu.Unlock()
	s.hub.callers.drop(s.id)
	for _, m := range members {
		leave(m)
	}
	s.hub.gone(s)
}

// counted returns 1, or 0 for a watcher, which counters of clients, subscribers and messages
// exclude.
func (s *Session) counted() int64 {
	if s.watcher {
		return 0
	}
	return 1
}

// SessionID returns an id by which the API may name the client besides its client id, or "" for a
// transport of both directions. A client that sends by other requests names itself by it: then it
// is a secret. That of a client that only receives is computed from its id, so it takes no memory.
func (s *Session) SessionID() string {
	if t, ok := s.t.(*StreamTransport); ok && t.Client != nil && t.Client.Secret != "" {
		return t.Client.Secret
	}
	if f, ok := s.form().Form.(OneWayForm); !ok || !f.OneWay() {
		return ""
	}
	return s.hub.secret.of(s.id, s.hub.random).String()
}

// held keeps messages for sessions whose reply to connect is not complete. That reply also says
// what the server-side subscriptions have recovered, so it comes before their publications.
type held struct {
	mu   sync.Mutex // may be taken while a channel's lock is held
	list map[*Session]*heldMessages
}

type heldMessages struct {
	payloads [][]byte
	bytes    int // at most Limits.Queue
}

// Hold makes messages for the session wait until ReleaseHeld: up to Limits.Queue, as in a
// transport. It is for SubscribeFirst.
func (s *Session) Hold() {
	h := &s.hub.held
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.list == nil {
		h.list = make(map[*Session]*heldMessages)
	}
	h.list[s] = new(heldMessages)
	s.flags.Or(isHolding)
}

// offerHeld is Offer for a session that holds.
func (s *Session) offerHeld(m *Message) OfferResult {
	h := &s.hub.held
	h.mu.Lock()
	defer h.mu.Unlock()
	waiting := h.list[s]
	switch {
	case waiting == nil: // let go meanwhile
		return s.offerNow(m)
	case waiting.bytes > 0 && waiting.bytes+len(m.Payload) > s.hub.limits.Queue:
		return OfferFull
	}
	waiting.payloads = append(waiting.payloads, append([]byte(nil), m.Payload...))
	waiting.bytes += len(m.Payload)
	return OfferTaken
}

// ReleaseHeld sends first, then what has waited. It returns OfferFull if the client's queue has no
// room for all of it.
func (s *Session) ReleaseHeld(first []byte) OfferResult {
	h := &s.hub.held
	h.mu.Lock()
	defer h.mu.Unlock()
	waiting := h.list[s]
	if waiting == nil { // the session has ended
		return OfferGone
	}
	delete(h.list, s)
	defer s.flags.And(^uint32(isHolding))
	for _, payload := range append([][]byte{first}, waiting.payloads...) {
		if got := s.offerNow(&Message{Payload: payload}); got != OfferTaken {
			return got
		}
	}
	return OfferTaken
}

// drop forgets what waits for a session that has ended.
func (h *held) drop(s *Session) {
	if s.flags.Load()&isHolding == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.list, s)
}

// ID returns the client's id, a UUID that names it in the whole cluster.
func (s *Session) ID() string { return s.id.String() }

// Form returns the form in which the client gets messages.
func (s *Session) Form() Form { return s.form().Form }

// AnswersPings reports whether the client must answer pings.
func (s *Session) AnswersPings() bool { return s.form().answered }

// Hub returns the session's hub.
func (s *Session) Hub() *Hub { return s.hub }

// A ConnectionInfo is what operators may know of a connection.
type ConnectionInfo struct {
	Client    string   `json:"client"`
	User      string   `json:"user"`
	Node      string   `json:"node"`
	Remote    string   `json:"remote"`
	Transport string   `json:"transport"`
	Protocol  string   `json:"protocol"`
	Queued    int      `json:"queued"`   // bytes that wait for the client
	Channels  []string `json:"channels"` // its subscriptions, in order
}

// Info returns what operators may know of the session, without the name of its node.
func (s *Session) Info() ConnectionInfo {
	info := ConnectionInfo{Client: s.id.String(), User: s.User(), Remote: s.t.Remote(),
		Queued: s.t.Queued(), Channels: []string{}}
	info.Transport, info.Protocol = s.form().Kind()
	s.mu.Lock()
	for _, m := range s.members {
		info.Channels = append(info.Channels, m.ch.name)
	}
	s.mu.Unlock()
	slices.Sort(info.Channels)
	return info
}

// form returns the session's form.
func (s *Session) form() *formEntry { return &s.hub.forms[s.formID] }

// refreshByHook asks whether a connection that has expired goes on.
func (s *Session) refreshByHook() {
	if s.IsClosing() {
		return
	}
	a, err := s.hub.hooks.Refresh(context.Background(), s.caller())
	if s.hub.BeginChange(context.Background()) != nil {
		return // the process that goes on with the session asks again after Timing.Refresh
	}
	defer s.hub.EndChange()
	var why answer.Disconnect
	switch {
	case errors.As(err, &why):
		s.hookFailed("refresh", err)
		s.Disconnect(why)
	case err != nil:
		s.hub.log.Error("push: a hook failed", "hook", "refresh", "client", s.id.String(), "error", err)
	case a.Expired || s.hub.isPast(a.ExpireAt):
		s.Disconnect(answer.DisconnectExpired)
	default:
		s.refreshed(a)
	}
}

// refreshed applies the answer of Hooks.Refresh.
func (s *Session) refreshed(a RefreshAnswer) {
	if a.Caps != nil {
		caps, err := s.hub.regexes.Capabilities(a.Caps)
		if err != nil {
			s.hookFailed("refresh", err)
			return
		}
		s.setCapabilities(caps)
	}
	if s.identity != nil {
		s.identity.show(strict.Compact(a.Info))
	}
	if len(a.Meta) > 0 && json.Valid(a.Meta) {
		s.hub.callers.setMeta(s.id, a.Meta)
	}
	s.expireFrom(endOf(a.ExpireAt))
}
