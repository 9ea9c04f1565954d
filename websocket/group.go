package websocket

import (
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/outbox"
)

// A Group is connections that get the same messages: a room, a topic, a channel. Send hands a
// message to each loop that has members, once. The loop gives all messages of its poll cycle to
// each member before it sends: what was sent meanwhile, by any number of groups, leaves in one
// write. So Send costs the caller a few hundred nanoseconds, whatever the number of members.
//
// A member whose output is at its limit is handled by its Overflow policy, after the loop has
// offered the kernel what is queued. With OverflowBlock, the default, the member waits: it gets the
// messages later, in order, from the queue that the group's members on a loop share. A member is
// removed as too slow in two cases: it has had no room for Options.WriteTimeout, or it keeps that
// queue at its limit (16 MiB) without reading.
//
// Send never waits for a slow member. It waits while a loop still has 1 MiB, or 128 messages, to
// hand out, and while the shared queue is at its limit because of members that do read.
//
// The zero value is ready for use; it must not be copied. Its methods, and those of Member, may be
// called from any goroutine. OnFull is called with no lock held.
type Group struct {
	// OnFull is called with a member that was removed as too slow. Nil: the member is closed with
	// StatusTryAgainLater. OnFull must not block; it runs on a loop, or in Send.
	OnFull func(c *Conn)

	mu     sync.Mutex
	shards atomic.Pointer[[]*shard] // one for each loop that has had members; replaced under mu
	taken  atomic.Uint64
}

// A Member is a connection's membership in a Group.
type Member struct {
	shard *shard
	c     *Conn
	// guarded by shard.mu: the number of the first message that it gets, or, while it is late, of
	// the next one
	next uint64
	at   int32 // guarded by shard.mu: its place in members, or in late; or nowhere
	late bool  // guarded by shard.mu: it waits for room
	// guarded by the roster's lock: its neighbours among the memberships of c
	before, following *Member
}

const nowhere = -1

// Join makes c a member: it gets what is sent from now on, behind what has been written to it
// before. It fails before OnOpen, when a connection may not have a loop yet. A connection leaves
// its groups when it has ended, before OnClose is called. A Join after that adds no member.
func (g *Group) Join(c *Conn) (*Member, error) {
	nc := c.conn()
	if nc == nil {
		return nil, errors.New("websocket: Group.Join before OnOpen: the connection has no loop yet")
	}
	return g.shard(nc.Loop()).join(c), nil
}

// Conn is the member.
func (m *Member) Conn() *Conn { return m.c }

// Leave ends the membership: when it returns, nothing more is queued for the connection. It may be
// called repeatedly, and on a nil Member, which does nothing.
func (m *Member) Leave() {
	if m == nil {
		return
	}
	m.shard.mu.Lock()
	defer m.shard.mu.Unlock()
	m.shard.remove(m)
	m.shard.trim()
	m.shard.wakeSenders()
}

// Len is how many members there are.
func (g *Group) Len() (n int) {
	for _, p := range g.all() {
		p.mu.Lock()
		n += p.count()
		p.mu.Unlock()
	}
	return n
}

// All ranges over the members' connections, in no order. A member that joins or leaves meanwhile
// may be missing or included. No lock is held during an iteration, so its body may call every
// method.
func (g *Group) All() iter.Seq[*Conn] {
	return func(yield func(*Conn) bool) {
		for _, p := range g.all() {
			for _, c := range p.conns() {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// Taken is how many messages members have been given so far, each counted for each of them.
func (g *Group) Taken() uint64 { return g.taken.Load() }

// Send sends a message to every member, soon. p is not kept. Messages arrive in the order of the
// calls, if these have one. In a callback that runs inline on a loop Send cannot wait. It does the
// loop's work itself, and removes members at once that keep the shared queue full. Send fails as
// Prepare does.
func (g *Group) Send(op Op, p []byte) error { return g.SendExcept(op, p) }

// SendExcept is Send to all members but some: the connection a message came from, most often.
func (g *Group) SendExcept(op Op, p []byte, except ...*Conn) error {
	m, err := Prepare(op, p)
	if err != nil {
		return err
	}
	defer m.Release()
	g.send(entry{msg: m, except: slices.Clone(except)})
	return nil
}

// SendPrepared is Send for a message that is encoded already; m may be released at once.
func (g *Group) SendPrepared(m *Prepared) { g.send(entry{msg: m}) }

func (g *Group) send(e entry) {
	for _, p := range g.all() {
		p.send(e)
	}
}

// Close closes every member in order, as Conn.Close does: behind all messages that were sent
// before. It does not wait. A member that is too slow for these messages is closed with the same
// code and reason, and without OnFull. Connections may join anew. It fails if the code may not be
// sent.
func (g *Group) Close(code StatusCode, reason string) error {
	if err := code.checkClose(); err != nil {
		return err
	}
	for _, p := range g.all() {
		p.append(entry{close: &closeFrame{code, reason}})
	}
	return nil
}

func (g *Group) all() []*shard {
	if shards := g.shards.Load(); shards != nil {
		return *shards
	}
	return nil
}

func (g *Group) shard(l *myriad.Loop) *shard {
	find := func() *shard {
		for _, p := range g.all() {
			if p.loop == l {
				return p
			}
		}
		return nil
	}
	if p := find(); p != nil {
		return p
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	p := find()
	if p == nil {
		p = newShard(g, l)
		shards := append(slices.Clone(g.all()), p)
		g.shards.Store(&shards)
	}
	return p
}

// A roster has the memberships of the connections of one loop, in all groups, so that a connection
// leaves them when it ends. It is apart from Conn because most connections are in no group. It is
// locked last, behind shard.mu and Conn.mu.
type roster struct {
	mu    sync.Mutex
	first map[*Conn]*Member // of a list by Member.following
	most  int               // connections that first has had
}

type rosterKey struct{ loop int }

// rosterOf is the roster of a loop. Any goroutine.
func rosterOf(l *myriad.Loop) *roster {
	return l.Engine().Shared(rosterKey{l.Index()}, func() any { return new(roster) }).(*roster)
}

// enter notes a membership, unless the connection has ended: then it reports false. m.shard.mu is
// held.
func (r *roster) enter(m *Member) bool {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	if m.c.end.gone() {
		return false
	}
	m.c.joined = true
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == nil {
		r.first = map[*Conn]*Member{}
	}
	if m.following = r.first[m.c]; m.following != nil {
		m.following.before = m
	}
	r.first[m.c] = m
	r.most = max(r.most, len(r.first))
	return true
}

// strike forgets a membership, if it is noted.
func (r *roster) strike(m *Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case m.before != nil:
		m.before.following = m.following
	case r.first[m.c] != m:
		return
	case m.following != nil:
		r.first[m.c] = m.following
	default:
		r.drop(m.c)
	}
	if m.following != nil {
		m.following.before = m.before
	}
	m.before, m.following = nil, nil
}

// leave ends all memberships of a connection that has ended, with none of its locks held.
func (r *roster) leave(c *Conn) {
	for m := r.take(c); m != nil; {
		next := m.following
		m.following = nil
		m.Leave()
		m = next
	}
}

// take returns the list of c's memberships, which are no longer noted.
func (r *roster) take(c *Conn) *Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.first[c]
	r.drop(c)
	for m := list; m != nil; m = m.following {
		m.before = nil
	}
	return list
}

// handOut gives c what its groups were sent and have not handed out yet. On the loop, with none of
// its locks held.
func (r *roster) handOut(c *Conn) {
	r.mu.Lock()
	var shards []*shard
	for m := r.first[c]; m != nil; m = m.following {
		shards = append(shards, m.shard)
	}
	r.mu.Unlock()
	for _, p := range shards {
		p.exhaust(false)
	}
}

// keptRoster is for how many connections an empty roster keeps room.
const keptRoster = 64

// drop forgets a connection. mu is held.
func (r *roster) drop(c *Conn) {
	if delete(r.first, c); len(r.first) == 0 && r.most > keptRoster {
		r.first, r.most = nil, 0
	}
}

// This file is a group on one loop. docs/adr/0020 has the reasons for members that wait
// (OverflowBlock), and for senders that wait for a loop.

const (
	// groupSlice is how many members are given messages in one poll cycle of their loop: as many as
	// it sends to in one (ADR 3). With more, what has been queued leaves the processor's cache, and
	// takes memory, before its turn to be sent comes. groupSliceBytes ends a slice of large
	// messages, so that requests that arrive meanwhile are answered.
	groupSlice      = 32
	groupSliceBytes = 1 << 20
	// maxTick and maxTickBytes bound what waits for a loop to hand it out. Above either, Send waits
	// for the loop.
	maxTick      = 128
	maxTickBytes = 1 << 20
)

const (
	// maxLogBytes bounds the log of a shard, which cannot be trimmed while members are late.
	// maxLogsBytes bounds the logs of all groups of an engine together. Above it, a shard with more
	// than maxTickBytes is full, too.
	maxLogBytes  = 16 << 20
	maxLogsBytes = 64 << 20
	// patience is for how long a sender waits for members that keep a log full and have had no room
	// since.
	patience = 100 * time.Millisecond
)

// logsKey is of how many bytes are in the logs of an engine.
type logsKey struct{}

// A shard is the members of a group on one loop, with the log of messages that some of them have
// not been given yet. Messages are handed out in rounds over the members, each of which takes
// several poll cycles. Members in late are outside of the round, and have a cursor each in the log.
type shard struct {
	group  *Group
	loop   *myriad.Loop
	roster *roster // of the loop
	run    func()  // turn, for the loop

	// give gives a member one message. It returns errWait if the member waits for room.
	give func(m *Member, e entry) error

	mu      sync.Mutex // guards what follows
	log     outbox.Log[entry]
	members []*Member
	late    []*Member
	round   round
	fresh   int  // bytes of the log that no round has begun to hand out
	asked   bool // the loop will call turn
	senders senders
}

// A round hands the messages from first to last to the members before end. Those before at have
// been given them. first and last are equal while no round is under way.
type round struct {
	first, last uint64
	at, end     int32
}

// senders are what calls of Send see of a shard.
type senders struct {
	waiting []driver.Parker
	pressed bool   // one waits
	turns   uint64 // how often the loop has come
}

// An entry of the log is a message, or the end of all members.
type entry struct {
	msg    *Prepared
	except []*Conn
	close  *closeFrame // msg is nil
}

type closeFrame struct {
	code   StatusCode
	reason string
}

// Len implements outbox.Message.
func (e entry) Len() int {
	if e.msg == nil {
		return 0
	}
	return len(e.msg.payload)
}

// Release implements outbox.Message.
func (e entry) Release() {
	if e.msg != nil {
		e.msg.Release()
	}
}

func newShard(g *Group, l *myriad.Loop) *shard {
	p := &shard{group: g, loop: l, give: giveMember, roster: rosterOf(l)}
	p.log.Total = l.Engine().Shared(logsKey{}, func() any { return new(atomic.Int64) }).(*atomic.Int64)
	p.run = p.turn
	return p
}

func (p *shard) join(c *Conn) *Member {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &Member{shard: p, c: c, next: p.log.Next(), at: nowhere}
	if p.roster.enter(m) {
		p.add(m)
	}
	return m
}

// add puts m behind the members that the round under way concerns. mu is held.
func (p *shard) add(m *Member) {
	m.at = int32(len(p.members))
	p.members = append(p.members, m)
}

// count is how many members there are. mu is held.
func (p *shard) count() int { return len(p.members) + len(p.late) }

func (p *shard) conns() []*Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*Conn, 0, p.count())
	for _, list := range [...][]*Member{p.members, p.late} {
		for _, m := range list {
			if !m.c.end.gone() {
				all = append(all, m.c)
			}
		}
	}
	return all
}

// append lets e wait for the loop, which is asked to come unless it has been.
func (p *shard) append(e entry) {
	p.mu.Lock()
	if p.count() == 0 {
		p.mu.Unlock()
		return
	}
	if e.msg != nil {
		e.msg.Retain()
	}
	p.log.Append(e)
	p.fresh += e.Len()
	ask := !p.asked
	p.asked = true
	p.mu.Unlock()
	if ask {
		p.ask()
	}
}

// ask has the loop call turn. If the loop's mailbox is full, or the loop has ended, the caller does
// the loop's work.
func (p *shard) ask() {
	if p.loop.Do(p.run) != nil {
		p.exhaust(true)
	}
}

// exhaust does the loop's work on the caller's goroutine. unasked says that the loop will not come.
func (p *shard) exhaust(unasked bool) {
	for more := true; more; {
		p.mu.Lock()
		slow := p.spread()
		if more = p.busy(); unasked && !more {
			p.asked = false
		}
		p.wakeSenders()
		p.mu.Unlock()
		p.tooSlow(slow)
	}
}

// busy reports whether there is something to hand out. mu is held.
func (p *shard) busy() bool { return p.round.first != p.round.last || p.log.Next() > p.round.last }

// turn is the work of one poll cycle, on the loop.
func (p *shard) turn() {
	p.mu.Lock()
	p.senders.turns++
	slow := p.spread()
	if p.senders.pressed {
		p.senders.pressed = false
		slow = append(slow, p.relieve(false)...)
	}
	if p.asked = p.busy(); p.asked {
		p.loop.Later(p.run)
	}
	p.wakeSenders()
	p.mu.Unlock()
	p.tooSlow(slow)
}

// spread gives some members what the round hands out, and returns those that were refused. mu is
// held.
func (p *shard) spread() (slow []removed) {
	if p.round.first == p.round.last {
		if p.log.Next() == p.round.last {
			return nil
		}
		p.round = round{first: p.round.last, last: p.log.Next(), end: int32(len(p.members))}
		p.fresh = 0
	}
	var done tally
	for n := 0; n < groupSlice && done.bytes < groupSliceBytes && p.round.at < p.round.end; n++ {
		m := p.members[p.round.at]
		switch next, err := p.hand(m, max(m.next, p.round.first), p.round.last, &done); err {
		case nil:
			p.round.at++
		case errWait:
			p.postpone(m, next)
		default:
			slow = p.refuse(slow, m, next, err)
		}
	}
	p.group.taken.Add(done.messages)
	if p.round.at == p.round.end {
		p.round.stop()
		p.trim()
	}
	return slow
}

// A tally counts what members have been given.
type tally struct {
	messages uint64
	bytes    int
}

// hand gives m the messages of a range, and returns the number of the first one that m has not
// taken. mu is held.
func (p *shard) hand(m *Member, from, to uint64, done *tally) (next uint64, err error) {
	for ; from < to; from++ {
		e := p.log.At(from)
		if e.except != nil && slices.Contains(e.except, m.c) {
			continue
		}
		if err := p.give(m, e); err != nil {
			return from, err
		}
		done.messages++
		done.bytes += e.Len()
	}
	return to, nil
}

// giveMember is part.give. The part's lock is held.
func giveMember(m *Member, e entry) error {
	if e.close != nil {
		_ = m.c.Close(e.close.code, e.close.reason) // it may be closing already
		return errClosing
	}
	return m.c.writeMember(outgoing{op: e.msg.op, p: e.msg.payload, prepared: e.msg}, m)
}

// A removed member is a connection that was refused, or closed.
type removed struct {
	c     *Conn
	close *closeFrame // what the group closes it with; nil: OnFull decides
}

// refuse ends the membership of a member that has not taken the message of the given number. mu is
// held.
func (p *shard) refuse(slow []removed, m *Member, at uint64, err error) []removed {
	p.remove(m)
	if !errors.Is(err, myriad.ErrFull) {
		return slow
	}
	r := removed{c: m.c}
	for ; at < p.log.Next() && r.close == nil; at++ {
		r.close = p.log.At(at).close
	}
	return append(slow, r)
}

// tooSlow is called with nothing held.
func (p *shard) tooSlow(slow []removed) {
	for _, r := range slow {
		switch { // it may have closed meanwhile
		case r.close != nil:
			_ = r.c.Close(r.close.code, r.close.reason)
		case p.group.OnFull != nil:
			p.group.OnFull(r.c)
		default:
			_ = r.c.Close(StatusTryAgainLater, tooSlow)
		}
	}
}

// remove takes m out of the list that it is in. mu is held.
func (p *shard) remove(m *Member) {
	switch {
	case m.at == nowhere:
		return
	case m.late:
		p.removeLate(m)
	default:
		p.removeTimely(m)
	}
	m.at = nowhere
	p.roster.strike(m)
}

// removeTimely fills the hole with the last member of its stretch, and the hole that leaves with
// the last of the next. mu is held.
func (p *shard) removeTimely(m *Member) {
	hole := m.at
	if hole < p.round.at {
		p.round.at--
		p.move(p.round.at, hole)
		hole = p.round.at
	}
	if hole < p.round.end {
		p.round.end--
		p.move(p.round.end, hole)
		hole = p.round.end
	}
	last := int32(len(p.members) - 1)
	p.move(last, hole)
	p.members = shorten(p.members)
}

func (p *shard) move(from, to int32) {
	if from != to { // else what is there has its place already, elsewhere
		p.members[to] = p.members[from]
		p.members[to].at = to
	}
}

// shorten drops the last member, and room that is no longer needed.
func shorten(list []*Member) []*Member {
	last := len(list) - 1
	list[last] = nil
	list = list[:last]
	if cap(list) > 64 && last < cap(list)/4 {
		list = slices.Clone(list)
	}
	return list
}

// trim releases the messages that all members have been given. mu is held.
func (p *shard) trim() {
	if p.count() == 0 {
		p.round.stop()
	}
	p.log.Trim(p.round.first)
}

// stop ends a round: all members have what it hands out.
func (s *round) stop() { s.first, s.at, s.end = s.last, 0, 0 }

// postpone makes m late: it has had no room for the message next. mu is held.
func (p *shard) postpone(m *Member, next uint64) {
	p.removeTimely(m)
	m.late, m.at = true, int32(len(p.late))
	p.late = append(p.late, m)
	p.expect(m, next)
}

// expect notes which message a late member gets next. mu is held.
func (p *shard) expect(m *Member, next uint64) {
	m.next = next
	p.log.Hold(next)
}

// removeLate takes m off the list of late members. mu is held.
func (p *shard) removeLate(m *Member) {
	p.log.Unhold(m.next)
	last := len(p.late) - 1
	p.late[m.at] = p.late[last]
	p.late[m.at].at = m.at
	p.late = shorten(p.late)
	m.late = false
	m.c.forgetLate(m)
}

// catchUp gives a late member what it has missed, as far as there is room now. On the loop.
func (p *shard) catchUp(m *Member) {
	var slow []removed
	p.mu.Lock()
	if m.late {
		var done tally
		next, err := p.hand(m, m.next, p.log.Next(), &done)
		p.group.taken.Add(done.messages)
		switch {
		case err == errWait:
			p.log.Unhold(m.next)
			p.expect(m, next)
		case err != nil:
			slow = p.refuse(slow, m, next, err)
		default:
			p.removeLate(m)
			m.next = next
			p.add(m)
		}
		p.trim()
	}
	p.wakeSenders()
	p.mu.Unlock()
	p.tooSlow(slow)
}

// giveUp removes a late member that has waited for too long.
func (p *shard) giveUp(m *Member) {
	var slow []removed
	p.mu.Lock()
	if m.late {
		slow = p.refuse(slow, m, m.next, myriad.ErrFull)
		p.trim()
	}
	p.wakeSenders()
	p.mu.Unlock()
	p.tooSlow(slow)
}

// relieve removes members that keep the log full: those that have had no room for some time, or, if
// now is set, all. mu is held.
func (p *shard) relieve(now bool) (slow []removed) {
	for p.overfull() && p.log.Oldest() != p.round.first {
		before := len(p.late)
		for i := len(p.late) - 1; i >= 0; i-- {
			if m := p.late[i]; m.next == p.log.Oldest() && (now || m.c.lateFor(patience)) {
				slow = p.refuse(slow, m, m.next, myriad.ErrFull)
			}
		}
		if len(p.late) == before {
			break
		}
		p.trim()
	}
	return slow
}

// overfull reports whether the log is at its limit. mu is held.
func (p *shard) overfull() bool {
	return p.log.Bytes() >= maxLogBytes || p.log.Bytes() >= maxTickBytes && p.log.Total.Load() >= maxLogsBytes
}

// crowded reports whether senders have to wait. mu is held.
func (p *shard) crowded() bool {
	return p.fresh >= maxTickBytes || p.log.Next()-p.round.last >= maxTick || p.overfull()
}

// send appends e when there is room for it.
func (p *shard) send(e entry) {
	p.admit()
	p.append(e)
}

// admit waits for room in the log. Where the caller must not wait, it makes room.
func (p *shard) admit() {
	var w driver.Parker
	for turns, more := p.waits(nil); more; {
		e := p.loop.Engine()
		if w == nil {
			if !e.HandOff() {
				p.makeRoom(true)
				return
			}
			w = e.System().NewParker()
		}
		if errors.Is(p.loop.Do(p.run), myriad.ErrClosed) {
			p.makeRoom(true)
			return
		}
		if _, more = p.waits(w); !more {
			return
		}
		w.ParkFor(patience)
		before := turns
		if turns, more = p.waits(w); more && turns == before {
			p.makeRoom(false) // the loop is held up, perhaps by a callback that waits for a lock of this caller's
			turns, more = p.waits(w)
		}
	}
}

// waits reports whether a sender has to wait, and how often the loop has come to the shard. If it
// has to, w, unless it is nil, is woken when there is room.
func (p *shard) waits(w driver.Parker) (turns uint64, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count() == 0 || !p.crowded() {
		return p.senders.turns, false
	}
	if w != nil && !slices.Contains(p.senders.waiting, w) {
		p.senders.waiting = append(p.senders.waiting, w)
	}
	p.senders.pressed = p.senders.pressed || w != nil
	return p.senders.turns, true
}

// makeRoom does the loop's work on the caller's goroutine, and removes members that keep the log
// full after that, as relieve does.
func (p *shard) makeRoom(now bool) {
	p.exhaust(false)
	p.mu.Lock()
	slow := p.relieve(now)
	p.wakeSenders()
	p.mu.Unlock()
	p.tooSlow(slow)
}

// wakeSenders lets senders go on if there is room. mu is held.
func (p *shard) wakeSenders() {
	if len(p.senders.waiting) == 0 || p.crowded() && p.count() > 0 {
		return
	}
	for _, w := range p.senders.waiting {
		w.Unpark()
	}
	p.senders.waiting = p.senders.waiting[:0]
}
