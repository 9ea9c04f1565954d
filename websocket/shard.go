package websocket

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/outbox"
)

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
	// maxLogsBytes bounds the logs of all groups of an engine together: above it, a shard with more
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
