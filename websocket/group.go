package websocket

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad"
)

const (
	// groupSlice is how many members are given messages in a turn of their loop: as many as it sends to in a turn (ADR 3). With more, what
	// has been queued leaves the processor's cache, and takes memory, before its turn to be sent comes.
	groupSlice = 32
	// maxTick and maxTickBytes bound what waits for a loop to broadcast it. Above either, Broadcast does the loop's work itself, so that
	// who broadcasts more than is taken is slowed down.
	maxTick      = 128
	maxTickBytes = 1 << 20
)

// A Group is connections that get the same messages. Broadcast hands a message to each loop that has members, once, and the loop gives
// all messages of its turn to each of its members before it sends: a connection gets everything that was broadcast meanwhile, by any
// number of groups, in one write. So a broadcast costs the caller a few hundred nanoseconds, whatever the number of members.
//
// The zero value is ready for use; it must not be copied. Its methods, and those of Member, may be called from any goroutine, and
// OnFull is called with no lock held.
type Group struct {
	// OnFull hears of a member that had no room for a message, which its Overflow policy has refused. It is a member no longer. Nil: it is
	// closed with StatusTryAgainLater. OnFull must not block; it runs on a loop, or in Broadcast.
	OnFull func(c *Conn)

	mu    sync.Mutex
	parts atomic.Pointer[[]*part] // one for each loop that has had members; replaced under mu
	taken atomic.Uint64
}

// A Member is a connection's membership in a Group.
type Member struct {
	part  *part
	c     *Conn
	at    int    // guarded by part.mu: its place, or nowhere
	since uint64 // the number of the first message that it gets
}

const nowhere = -1

// A part is the members on one loop. A pass over them takes several turns; those before at have had tick, those from at to end have not,
// and those from end on are too new for it.
type part struct {
	group *Group
	loop  *myriad.Loop
	run   func() // pass, for the loop

	mu      sync.Mutex
	members []*Member
	next    uint64      // the number that the next message gets
	queue   []*Prepared // for the next pass
	bytes   int         // of them
	tick    []*Prepared // what the pass under way spreads; nil: none is
	first   uint64      // the number of the first of them
	at, end int
	asked   bool // the loop will call pass
}

// Join makes c a member: it gets what is broadcast from now on, behind what has been written to it before. It fails before OnOpen, when
// a connection may not have a loop yet. A connection that has closed leaves with the next broadcast, or by Leave in OnClose.
func (g *Group) Join(c *Conn) (*Member, error) {
	nc := c.conn()
	if nc == nil {
		return nil, errors.New("websocket: Group.Join before OnOpen: the connection has no loop yet")
	}
	p := g.part(nc.Loop())
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &Member{part: p, c: c, at: len(p.members), since: p.next}
	p.members = append(p.members, m)
	return m, nil
}

// Conn is the member.
func (m *Member) Conn() *Conn { return m.c }

// Leave ends the membership: when it returns, nothing more is queued for the connection. It may be called repeatedly.
func (m *Member) Leave() {
	m.part.mu.Lock()
	defer m.part.mu.Unlock()
	m.part.remove(m)
}

// Len is how many members there are.
func (g *Group) Len() (n int) {
	for _, p := range g.all() {
		p.mu.Lock()
		n += len(p.members)
		p.mu.Unlock()
	}
	return n
}

// Taken is how many messages members have been given so far, each counted for each of them.
func (g *Group) Taken() uint64 { return g.taken.Load() }

// Broadcast gives m to every member, soon; m may be released at once. Messages arrive in the order of the calls, if these have one.
func (g *Group) Broadcast(m *Prepared) {
	for _, p := range g.all() {
		p.enqueue(m)
	}
}

// Send is Broadcast for a message that has not been prepared.
func (g *Group) Send(op Op, p []byte) error {
	m, err := Prepare(op, p)
	if err != nil {
		return err
	}
	defer m.Release()
	g.Broadcast(m)
	return nil
}

func (g *Group) all() []*part {
	if parts := g.parts.Load(); parts != nil {
		return *parts
	}
	return nil
}

func (g *Group) part(l *myriad.Loop) *part {
	find := func() *part {
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
		p = &part{group: g, loop: l}
		p.run = p.pass
		parts := append(slices.Clone(g.all()), p)
		g.parts.Store(&parts)
	}
	return p
}

// enqueue lets m wait for the loop, which is asked to come unless it has been.
func (p *part) enqueue(m *Prepared) {
	p.mu.Lock()
	if len(p.members) == 0 {
		p.mu.Unlock()
		return
	}
	p.queue = append(p.queue, m.Retain())
	p.bytes += len(m.payload)
	p.next++
	full := len(p.queue) >= maxTick || p.bytes >= maxTickBytes
	ask := !p.asked
	p.asked = true
	p.mu.Unlock()
	if ask && p.loop.Do(p.run) != nil || full { // the mailbox is full, or the loop has ended
		p.exhaust(ask)
	}
}

// exhaust does the loop's work on the caller's goroutine. unasked says that the loop will not come.
func (p *part) exhaust(unasked bool) {
	for more := true; more; {
		p.mu.Lock()
		slow := p.spread()
		more = p.tick != nil || len(p.queue) > 0
		if unasked && !more {
			p.asked = false
		}
		p.mu.Unlock()
		p.tooSlow(slow)
	}
}

// pass is a turn's work, on the loop.
func (p *part) pass() {
	p.mu.Lock()
	slow := p.spread()
	p.asked = p.tick != nil || len(p.queue) > 0
	if p.asked {
		p.loop.Later(p.run)
	}
	p.mu.Unlock()
	p.tooSlow(slow)
}

// spread gives the tick's messages to some members and returns those that had no room. mu is held.
func (p *part) spread() (slow []*Conn) {
	if p.tick == nil {
		if len(p.queue) == 0 {
			return nil
		}
		p.tick, p.first = p.queue, p.next-uint64(len(p.queue))
		p.queue, p.bytes = nil, 0
		p.at, p.end = 0, len(p.members)
	}
	sent := 0
	for stop := min(p.end, p.at+groupSlice); p.at < min(stop, p.end); {
		m := p.members[p.at]
		n, err := p.give(m)
		sent += n
		if err == nil {
			p.at++
			continue
		}
		p.remove(m) // another one is in its place now
		if errors.Is(err, myriad.ErrFull) {
			slow = append(slow, m.c)
		}
	}
	p.group.taken.Add(uint64(sent))
	if p.at == p.end {
		for _, m := range p.tick {
			m.Release()
		}
		p.tick, p.at, p.end = nil, 0, 0
	}
	return slow
}

// give queues what m is to have of the tick.
func (p *part) give(m *Member) (n int, err error) {
	skip := 0
	if m.since > p.first {
		skip = int(min(m.since-p.first, uint64(len(p.tick))))
	}
	for _, msg := range p.tick[skip:] {
		if err = m.c.writeNow(outgoing{msg.op, msg.payload, msg}); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// remove fills the hole with the last member of its stretch, and the hole that leaves with the last of the next. mu is held.
func (p *part) remove(m *Member) {
	hole := m.at
	if hole == nowhere {
		return
	}
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
	last := len(p.members) - 1
	p.move(last, hole)
	p.members[last] = nil
	p.members = p.members[:last]
	if cap(p.members) > 64 && last < cap(p.members)/4 {
		p.members = slices.Clone(p.members)
	}
	m.at = nowhere
}

func (p *part) move(from, to int) {
	if from != to { // else what is there has its place already, elsewhere
		p.members[to] = p.members[from]
		p.members[to].at = to
	}
}

// tooSlow is called with nothing held.
func (p *part) tooSlow(slow []*Conn) {
	for _, c := range slow {
		if p.group.OnFull != nil {
			p.group.OnFull(c)
		} else {
			_ = c.Close(StatusTryAgainLater, tooSlow) // it may have closed meanwhile
		}
	}
}
