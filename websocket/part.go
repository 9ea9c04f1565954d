package websocket

import (
	"errors"
	"slices"
	"sync"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
)

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

// A part is the members of a group on one loop, with the log of messages that some of them have not
// been given yet. Messages are numbered. A pass over the members takes several poll cycles: members
// before at have been given the messages from first to last, members from at to end have not, and
// members from end on get none of them. Members in late are outside of the pass.
type part struct {
	group  *Group
	loop   *myriad.Loop
	total  *logged // of the engine
	roster *roster // of the loop
	run    func()  // pass, for the loop

	// give gives a member one message. It returns errWait if the member waits for room.
	give func(m *Member, e *entry) error

	mu          sync.Mutex
	members     []*Member
	late        []*Member
	log         []entry
	base        uint64 // the number of log[0]
	bytes       int    // of log
	fresh       int    // of these, behind last
	first, last uint64 // what the pass hands out; equal: no pass is under way
	at, end     int32
	asked       bool            // the loop will call pass
	passes      uint64          // how often it has
	pressed     bool            // a sender waits
	senders     []driver.Parker // the senders that wait
}

// An entry of the log is a message, or the end of all members.
type entry struct {
	msg    *Prepared
	except []*Conn
	close  *closeFrame // msg is nil
	late   int         // how many late members get this one next
}

type closeFrame struct {
	code   StatusCode
	reason string
}

func (e *entry) size() int {
	if e.msg == nil {
		return 0
	}
	return len(e.msg.payload)
}

func newPart(g *Group, l *myriad.Loop) *part {
	p := &part{group: g, loop: l, give: giveMember}
	p.total = l.Engine().Shared(loggedKey{}, func() any { return new(logged) }).(*logged)
	p.roster = rosterOf(l)
	p.run = p.pass
	return p
}

func (p *part) join(c *Conn) *Member {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &Member{part: p, c: c, next: p.next(), at: nowhere}
	if p.roster.enter(m) {
		p.add(m)
	}
	return m
}

// add puts m behind the members that the pass under way concerns. mu is held.
func (p *part) add(m *Member) {
	m.at = int32(len(p.members))
	p.members = append(p.members, m)
}

// next is the number that the next message gets. mu is held.
func (p *part) next() uint64 { return p.base + uint64(len(p.log)) }

// count is how many members there are. mu is held.
func (p *part) count() int { return len(p.members) + len(p.late) }

func (p *part) conns() []*Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*Conn, 0, p.count())
	for _, list := range [...][]*Member{p.members, p.late} {
		for _, m := range list {
			if !m.c.is(closed) {
				all = append(all, m.c)
			}
		}
	}
	return all
}

// append lets e wait for the loop, which is asked to come unless it has been.
func (p *part) append(e entry) {
	p.mu.Lock()
	if p.count() == 0 {
		p.mu.Unlock()
		return
	}
	if e.msg != nil {
		e.msg.Retain()
	}
	n := e.size()
	p.log = append(p.log, e)
	p.bytes += n
	p.fresh += n
	p.total.bytes.Add(int64(n))
	ask := !p.asked
	p.asked = true
	p.mu.Unlock()
	if ask {
		p.ask()
	}
}

// ask has the loop call pass. If the loop's mailbox is full, or the loop has ended, the caller does
// the loop's work.
func (p *part) ask() {
	if p.loop.Do(p.run) != nil {
		p.exhaust(true)
	}
}

// exhaust does the loop's work on the caller's goroutine. unasked says that the loop will not come.
func (p *part) exhaust(unasked bool) {
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
func (p *part) busy() bool { return p.first != p.last || p.next() > p.last }

// pass is the work of one poll cycle, on the loop.
func (p *part) pass() {
	p.mu.Lock()
	p.passes++
	slow := p.spread()
	if p.pressed {
		p.pressed = false
		slow = append(slow, p.relieve(false)...)
	}
	if p.asked = p.busy(); p.asked {
		p.loop.Later(p.run)
	}
	p.wakeSenders()
	p.mu.Unlock()
	p.tooSlow(slow)
}

// spread gives some members what the pass hands out, and returns those that were refused. mu is
// held.
func (p *part) spread() (slow []removed) {
	if p.first == p.last {
		if p.next() == p.last {
			return nil
		}
		p.first, p.last, p.fresh = p.last, p.next(), 0
		p.at, p.end = 0, int32(len(p.members))
	}
	var done tally
	for n := 0; n < groupSlice && done.bytes < groupSliceBytes && p.at < p.end; n++ {
		m := p.members[p.at]
		switch next, err := p.hand(m, max(m.next, p.first), p.last, &done); err {
		case nil:
			p.at++
		case errWait:
			p.postpone(m, next)
		default:
			slow = p.refuse(slow, m, next, err)
		}
	}
	p.group.taken.Add(done.messages)
	if p.at == p.end {
		p.first, p.at, p.end = p.last, 0, 0
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
func (p *part) hand(m *Member, from, to uint64, done *tally) (next uint64, err error) {
	for ; from < to; from++ {
		e := &p.log[from-p.base]
		if e.except != nil && slices.Contains(e.except, m.c) {
			continue
		}
		if err := p.give(m, e); err != nil {
			return from, err
		}
		done.messages++
		done.bytes += e.size()
	}
	return to, nil
}

// giveMember is part.give. The part's lock is held.
func giveMember(m *Member, e *entry) error {
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
func (p *part) refuse(slow []removed, m *Member, at uint64, err error) []removed {
	p.remove(m)
	if !errors.Is(err, myriad.ErrFull) {
		return slow
	}
	r := removed{c: m.c}
	for _, e := range p.log[at-p.base:] {
		if e.close != nil {
			r.close = e.close
			break
		}
	}
	return append(slow, r)
}

// tooSlow is called with nothing held.
func (p *part) tooSlow(slow []removed) {
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
func (p *part) remove(m *Member) {
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
func (p *part) removeTimely(m *Member) {
	hole := m.at
	if hole < p.at {
		p.at--
		p.move(p.at, hole)
		hole = p.at
	}
	if hole < p.end {
		p.end--
		p.move(p.end, hole)
		hole = p.end
	}
	last := int32(len(p.members) - 1)
	p.move(last, hole)
	p.members = shorten(p.members)
}

func (p *part) move(from, to int32) {
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
func (p *part) trim() {
	if p.count() == 0 {
		p.first, p.at, p.end = p.last, 0, 0
	}
	n := 0
	for ; n < len(p.log) && p.log[n].late == 0 && p.base+uint64(n) < p.first; n++ {
		size := p.log[n].size()
		p.bytes -= size
		p.total.bytes.Add(-int64(size))
		if m := p.log[n].msg; m != nil {
			m.Release()
		}
	}
	clear(p.log[:n])
	p.base += uint64(n)
	if p.log = p.log[n:]; len(p.log) == 0 {
		p.log = nil
	}
}
