package websocket

import (
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad"
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

// keptRoster is for how many connections an empty roster keeps room.
const keptRoster = 64

// drop forgets a connection. mu is held.
func (r *roster) drop(c *Conn) {
	if delete(r.first, c); len(r.first) == 0 && r.most > keptRoster {
		r.first, r.most = nil, 0
	}
}
