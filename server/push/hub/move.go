package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/snapshot"
	"github.com/myriad-go/myriad/server/push/policy"
)

// This file moves a hub, and its sessions with their connections, to the hub of another process.
//
// In the old process the engine reads no more from the connections. Then comes Freeze, and the bus
// is frozen. Now nothing changes any more, and what was published is queued for its subscribers.
// WriteState has what all sessions share. The door of each connection calls Session.AppendState,
// and when another process has all of it, Session.Moved; the caller then calls Leave. If that
// process fails, the caller calls Thaw, and everything goes on.
//
// In the new process, whose hub has no sessions yet: Freeze, then Restore with what WriteState has
// written. The door of each connection calls ThawSession with a new Transport. Then Thaw. No client
// is told anything.

var (
	errNotFrozen = errors.New("push: the hub is not frozen: call Freeze")
	// ErrNotAtRest is why a client cannot move now: something runs for it, or waits.
	ErrNotAtRest = fmt.Errorf("push: the client's session is not at rest: %w", myriad.ErrBusy)
	errInUse     = errors.New("push: the hub has sessions: restore one that has just been made")
)

// Freeze stops the hub until Thaw or Leave. Publications of programs, calls that change sessions,
// and new clients wait meanwhile; the deadlines of sessions do, too. Freeze returns when none of
// them runs any more. The caller has stopped reading from the clients before, so that none of their
// commands waits.
//
// If ctx ends before, Freeze returns its error, and the hub goes on.
func (h *Hub) Freeze(ctx context.Context) error {
	if err := h.gate.freeze(ctx); err != nil {
		return err
	}
	h.wheel.pause(true, h.clock.Now().UnixNano())
	return nil
}

// Thaw ends a freeze: what waits goes on. Clients get their time to answer once more, because what
// they have sent may not have been read yet.
func (h *Hub) Thaw() {
	h.wheel.pause(false, h.clock.Now().UnixNano())
	restored := h.restored
	if restored != nil {
		h.OfferStreams(false)
	}
	h.restored = nil
	h.gate.leaveFrozen(gateOpen)
	if restored != nil && len(restored.present.all) > 0 {
		h.clock.AfterFunc(0, func() { h.announceLeft(&restored.present) }) // the clients that have come go on first
	}
}

// Leave ends a freeze in the process whose sessions have moved: what waits is refused with
// answer.ErrDraining. The caller then calls Shutdown, which disconnects the clients that are left.
func (h *Hub) Leave() {
	h.wheel.pause(false, h.clock.Now().UnixNano())
	h.gate.leaveFrozen(gateMoved)
}

// pause stops the ticks of sessions, or lets them go on.
func (w *wheel) pause(on bool, now int64) {
	w.sweeping.Lock()
	defer w.sweeping.Unlock()
	w.paused = on
	if !on {
		w.lateness.last = now
	}
}

// The parts of the state of a hub without its sessions.
const (
	nodePart    = "hub.node.1"    // its id and its secret
	countPart   = "hub.count.1"   // a counter
	channelPart = "hub.channel.1" // the base of deltas
	sessionPart = "hub.session.1" // what AppendState appends; no record has it
)

// StateParts are the parts of what WriteState and Session.AppendState write.
func StateParts() []string {
	return append([]string{nodePart, countPart, channelPart, sessionPart, refusalPart, refusedPart, slowPart,
		presentPart},
		policy.StateParts()...)
}

// WriteState writes what the sessions share. That is the node's id and secret, and its counters. It
// is the latest refusals and slow clients, what is used of rates, and the bases of deltas. The hub
// is frozen.
func (h *Hub) WriteState(w *snapshot.Writer) error {
	if !h.gate.isFrozen() {
		return errNotFrozen
	}
	key := h.secret.get(h.random)
	record := append(append([]byte(nil), h.id[:]...), key[:]...)
	if err := w.Record(nodePart, record); err != nil {
		return err
	}
	for name, counter := range h.counters() {
		record = snapshot.AppendNumber(snapshot.AppendText(record[:0], name), counter.Load())
		if err := w.Record(countPart, record); err != nil {
			return err
		}
	}
	for _, ch := range h.channels.all() {
		base := ch.deltaBase()
		if base == nil {
			continue
		}
		record = snapshot.AppendPublication(snapshot.AppendText(record[:0], ch.name), base)
		if err := w.Record(channelPart, record); err != nil {
			return err
		}
	}
	return errors.Join(h.writePresent(w), h.refusals.writeState(w), h.figures.writeSlow(w),
		h.rates.WriteState(w, h.clock.Now()))
}

// A counter is one that goes on in another process.
type counter interface {
	Load() uint64
	Store(uint64)
}

// counters returns the counters by the names that a state has for them.
func (h *Hub) counters() map[string]counter {
	f := h.figures
	all := map[string]counter{
		"publishes": &f.publishes, "messages": &f.messages, "slow": &f.slow,
		"dropped": &f.overflow.Dropped, "dropped bytes": &f.overflow.DroppedBytes,
		"latency nanos": &f.latency.nanos, "pings nanos": &f.pings.nanos,
	}
	for i := range f.latency.buckets {
		all[fmt.Sprint("latency ", i)], all[fmt.Sprint("pings ", i)] = &f.latency.buckets[i], &f.pings.buckets[i]
	}
	for i := range f.ended {
		name := "other"
		if i < len(endingReasons) {
			name = endingReasons[i].Reason
		}
		all["ended "+name] = &f.ended[i]
	}
	for why := range refusalReasons {
		all["refused "+why.String()] = &h.refusals.counts[why]
	}
	return all
}

// all returns the channels.
func (c *channels) all() (list []*channel) {
	for i := range c.shards {
		sh := &c.shards[i]
		sh.mu.Lock()
		for _, ch := range sh.channels {
			list = append(list, ch)
		}
		sh.mu.Unlock()
	}
	return list
}

// deltaBase returns the last publication, if a member gets deltas to it.
func (ch *channel) deltaBase() *bus.Publication {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.specials.base
}

// A Restore gives a hub what WriteState has written.
type Restore struct {
	hub      *Hub
	counters map[string]counter
	rates    *policy.Restore
	bases    map[string]*bus.Publication // of deltas, by channel
	present  present
}

// Restore begins to fill a hub, which is frozen and has no sessions.
func (h *Hub) Restore() (*Restore, error) {
	switch {
	case !h.gate.isFrozen():
		return nil, errNotFrozen
	case h.open.Load() > 0 || h.restored != nil:
		return nil, errInUse
	}
	h.restored = &Restore{hub: h, counters: h.counters(), rates: h.rates.Restore(h.clock.Now()),
		bases: make(map[string]*bus.Publication)}
	return h.restored, nil
}

// Record takes a record of one of StateParts, in the order of WriteState. After an error the hub is
// useless.
func (r *Restore) Record(part string, body []byte) error {
	f := snapshot.NewFields(body)
	switch part {
	case nodePart:
		var id clientID
		var key [32]byte
		f.Fixed(id[:])
		f.Fixed(key[:])
		if !f.Failed() {
			r.hub.id = id
			r.hub.secret.set(key)
		}
	case countPart:
		name, n := f.Text(), f.Number()
		if counter := r.counters[name]; counter != nil {
			counter.Store(n)
		} // else it is one of another version, and no reason to refuse the move
	case channelPart:
		name, base := f.Text(), f.Publication()
		r.bases[name] = &base
	case presentPart:
		r.present.record(f)
	case refusalPart:
		r.hub.refusals.restoreRefusal(f)
	case refusedPart:
		r.hub.refusals.restoreLast(f)
	case slowPart:
		r.hub.figures.restoreSlow(f)
	default:
		return r.rates.Record(part, body)
	}
	if err := f.Done(); err != nil {
		return fmt.Errorf("push: %s: %w", part, err)
	}
	return nil
}

// AppendState appends what another process needs to go on with the session, for ThawSession. Its
// door calls it when no operation runs, and the hub and the bus are frozen. It returns false if the
// session cannot move now: it ends, or messages wait for it besides those that its transport has.
// It changes nothing: the session may stay here after all.
func (s *Session) AppendState(dst []byte) (state []byte, ok bool) {
	if !s.hub.gate.isFrozen() {
		return dst, false
	}
	if s.isLagging() {
		s.catchUp()
	}
	s.mu.Lock()
	if s.flags.Load() != 0 || s.lagging || s.stage == stageEnded {
		s.mu.Unlock()
		return dst, false
	}
	dst = append(dst, s.id[:]...)
	for _, is := range []bool{s.watcher, s.hooked} {
		dst = snapshot.AppendBool(dst, is)
	}
	dst = snapshot.AppendNumber(dst, uint64(s.spared&^sparedLost))
	dst = snapshot.AppendNumber(dst, uint64(s.stage))
	for _, at := range []int64{s.pingAt, s.pongBy, s.endAt} {
		dst = snapshot.AppendInt(dst, at)
	}
	dst = s.identity.appendState(dst)
	members := slices.Clone(s.members) // a channel's lock is taken before s.mu
	s.mu.Unlock()
	dst = s.hub.callers.appendState(dst, s.id)
	dst = snapshot.AppendNumber(dst, uint64(len(members)))
	for _, m := range members {
		dst = m.appendState(dst)
	}
	return dst, true
}

// Moved is Ended for a session that goes on in another process: its leaving is not announced.
func (s *Session) Moved() { s.finish(s.hub.channels.leaveUnnoticed) }

func (s *Session) isLagging() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lagging
}

// appendState appends the content of a token; i may be nil.
func (i *identity) appendState(dst []byte) []byte {
	if dst = snapshot.AppendBool(dst, i != nil); i == nil {
		return dst
	}
	dst = snapshot.AppendTexts(snapshot.AppendText(dst, i.user), i.channels)
	dst = snapshot.AppendInt(dst, i.subsEnd)
	var info []byte
	if shown := i.info.Load(); shown != nil {
		info = *shown
	}
	caps := i.caps.Load()
	dst = snapshot.AppendBool(snapshot.AppendText(dst, info), caps != nil)
	if caps != nil {
		dst = caps.AppendState(dst)
	}
	return dst
}

func readIdentity(f *snapshot.Fields, regexes *policy.RegexCache) *identity {
	if !f.Bool() {
		return nil
	}
	i := &identity{user: f.Text(), channels: f.Texts(), subsEnd: f.Int()}
	i.show(f.Clone())
	if f.Bool() {
		caps := regexes.ReadCapabilities(f)
		i.caps.Store(&caps)
	}
	return i
}

// AppendState appends a grant that a door keeps for its client, for Hub.ReadGrant.
func (g *Grant) AppendState(dst []byte) []byte {
	dst = snapshot.AppendText(dst, g.User)
	ends := int64(0)
	if !g.Ends.IsZero() {
		ends = g.Ends.UnixNano()
	}
	dst = snapshot.AppendTexts(snapshot.AppendText(snapshot.AppendInt(dst, ends), g.info), g.Channels)
	dst = snapshot.AppendNumber(dst, uint64(len(g.Infos)))
	for _, name := range slices.Sorted(maps.Keys(g.Infos)) {
		dst = snapshot.AppendText(snapshot.AppendText(dst, name), g.Infos[name])
	}
	dst = append(dst, g.id[:]...)
	dst = snapshot.AppendBool(snapshot.AppendBool(dst, g.watcher), g.Hooked)
	return g.caps.AppendState(snapshot.AppendText(dst, g.meta))
}

// ReadGrant reads what Grant.AppendState has appended. It keeps nothing of the record.
func (h *Hub) ReadGrant(f *snapshot.Fields) (g Grant) {
	g.User = f.Text()
	if ends := f.Int(); ends != 0 {
		g.Ends = time.Unix(0, ends)
	}
	g.info, g.Channels = f.Clone(), f.Texts()
	for n := f.Count(); n > 0 && !f.Failed(); n-- {
		if g.Infos == nil {
			g.Infos = make(map[string][]byte)
		}
		name := f.Text()
		g.Infos[name] = f.Clone()
	}
	f.Fixed(g.id[:])
	g.watcher, g.Hooked = f.Bool(), f.Bool()
	g.meta = f.Clone()
	g.caps = h.admission.regexes.ReadCapabilities(f)
	return g
}

// appendState appends what hooks know of a client.
func (c *callers) appendState(dst []byte, id clientID) []byte {
	if dst = snapshot.AppendBool(dst, c.wanted); !c.wanted {
		return dst
	}
	known := c.get(id)
	dst = snapshot.AppendNumber(snapshot.AppendText(dst, known.Meta), uint64(len(known.Header)))
	for _, name := range slices.Sorted(maps.Keys(known.Header)) {
		dst = snapshot.AppendTexts(snapshot.AppendText(dst, name), known.Header[name])
	}
	return dst
}

// readCaller returns what hooks know of a client with that form; nil if there were none.
func readCaller(f *snapshot.Fields, of Form) *Caller {
	if !f.Bool() {
		return nil
	}
	c := (*RequestInfo)(nil).caller(of)
	c.Meta = f.Clone()
	for n := f.Count(); n > 0 && !f.Failed(); n-- {
		if c.Header == nil {
			c.Header = make(http.Header)
		}
		name := f.Text()
		c.Header[name] = f.Texts()
	}
	return &c
}

// appendState appends a subscription.
func (m *member) appendState(dst []byte) []byte {
	m.ch.mu.Lock()
	defer m.ch.mu.Unlock()
	dst = snapshot.AppendText(dst, m.ch.name)
	for _, is := range []bool{m.notices, m.server, m.grant != nil} {
		dst = snapshot.AppendBool(dst, is)
	}
	if g := m.grant; g != nil {
		dst = snapshot.AppendText(dst, g.info)
		for _, is := range []bool{g.publish, g.hooked, g.absent, g.renewed, g.spared, g.announced != nil,
			g.announced != nil && *g.announced} {
			dst = snapshot.AppendBool(dst, is)
		}
		dst = snapshot.AppendInt(dst, g.expires)
	}
	if dst = snapshot.AppendBool(dst, m.special); !m.special {
		return dst
	}
	special := m.ch.specials.list[m]
	for _, is := range []bool{special.delta, special.synced, special.filter != nil} {
		dst = snapshot.AppendBool(dst, is)
	}
	if special.filter != nil {
		dst = special.filter.AppendState(dst)
	}
	return dst
}

// A movedMember is a subscription that has come from another process.
type movedMember struct {
	channel string
	member
	command SubscribeCommand // its filter, and whether it gets deltas
	synced  bool             // see special
}

func readMember(f *snapshot.Fields) (m movedMember) {
	m.channel = f.Text()
	m.notices, m.server = f.Bool(), f.Bool()
	if f.Bool() {
		g := &memberGrant{info: f.Clone(), publish: f.Bool(), hooked: f.Bool(), absent: f.Bool(),
			renewed: f.Bool(), spared: f.Bool()}
		if has, is := f.Bool(), f.Bool(); has {
			g.announced = &is
		}
		g.expires = f.Int()
		m.grant = g
	}
	if f.Bool() {
		m.command.Delta, m.synced = f.Bool(), f.Bool()
		if f.Bool() {
			m.command.Filter = policy.ReadFilter(f)
		}
		if !m.command.Delta && m.command.Filter == nil {
			f.Fail("a subscription is special, and has neither a filter nor deltas")
		}
	}
	return m
}

// ThawSession goes on with a session of another process, over a new transport. Its client is told
// nothing, and gets what is published after the hub has thawed. The hub is frozen, and Restore has
// its part. f is the form that the session had. state is what AppendState has appended; ThawSession
// keeps nothing of it.
//
// After an error there is no session, and the door ends the connection with a reason for which
// clients come back, such as answer.DisconnectShutdown.
func (h *Hub) ThawSession(t Transport, f Form, state []byte) (*Session, error) {
	if !h.gate.isFrozen() {
		return nil, errNotFrozen
	}
	r := snapshot.NewFields(state)
	s := &Session{hub: h, t: t, formID: h.forms.idOf(f), wheelPlace: wheelPlace{slot: notInWheel}}
	r.Fixed(s.id[:])
	s.watcher, s.hooked = r.Bool(), r.Bool()
	s.spared = spared(r.NumberUpTo(sparedAll, "what a session has its time for once more"))
	s.stage = stage(r.NumberUpTo(uint64(stageConnected), "the stage of a session"))
	s.pingAt, s.pongBy, s.endAt = r.Int(), r.Int(), r.Int()
	if s.pongBy != 0 && s.pongBy != timedByConn {
		s.spared |= sparedLost
	}
	s.identity = readIdentity(r, &h.admission.regexes)
	caller := readCaller(r, f)
	var members []movedMember
	for n := r.Count(); n > 0 && !r.Failed(); n-- {
		members = append(members, readMember(r))
	}
	if err := r.Done(); err != nil {
		return nil, fmt.Errorf("push: a session's state: %w", err)
	}
	if s.stage == stageConnected && s.identity == nil && h.hooks.Subscribe != nil {
		s.identity = new(identity) // as setConnected
	}
	if h.callers.wanted {
		if caller == nil {
			known := (*RequestInfo)(nil).caller(f)
			caller = &known
		}
		h.callers.add(s.id, *caller)
	}
	h.sessions.resume(s)
	for i := range members {
		if err := h.rejoin(s, &members[i]); err != nil {
			s.Ended()
			return nil, fmt.Errorf("push: a session's subscription to %q: %w", members[i].channel, err)
		}
	}
	if s.timedByConn() {
		s.await()
	}
	if h.restored != nil {
		h.restored.present.come(s.id)
	}
	return s, nil
}

// timedByConn reports whether the transport is to tell when the answer to a ping is due. If the
// client was not pinged, the transport must not wait: it would end the client for no answer.
func (s *Session) timedByConn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pongBy == timedByConn
}

// resume counts a session that has moved, with the deadlines that it has.
func (l *sessions) resume(s *Session) {
	l.open.Add(1)
	l.figures.connections.Add(s.counted())
	s.mu.Lock()
	defer s.mu.Unlock()
	l.wheel.set(s, s.deadline())
}

// rejoin makes s a member again. Its client and the others are not told.
func (h *Hub) rejoin(s *Session, from *movedMember) error {
	if err := h.rules.Check(from.channel); err != nil {
		return err
	}
	s.mu.Lock()
	twice := s.find(from.channel) >= 0
	s.mu.Unlock()
	if twice {
		return answer.ErrAlreadySubscribed
	}
	ch := h.channels.acquire(from.channel)
	if err := ch.connect(); err != nil {
		h.channels.release(ch)
		return err
	}
	m := &member{s: s, ch: ch, grant: from.grant, notices: from.notices, server: from.server}
	ch.mu.Lock()
	ch.enter(m)
	ch.specials.add(m, &from.command)
	if m.special {
		ch.specials.list[m].synced = from.synced
	}
	if ch.specials.deltas > 0 && ch.specials.base == nil && h.restored != nil {
		ch.specials.base = h.restored.bases[ch.name]
	}
	ch.mu.Unlock()
	s.mu.Lock()
	s.members = append(s.members, m)
	s.mu.Unlock()
	return nil
}
