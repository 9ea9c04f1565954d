package websocket

import (
	"sync"

	"github.com/myriad-go/myriad"
)

// A roster has the memberships of the connections of one loop, in all groups, so that a connection
// leaves them when it ends. It is apart from Conn because most connections are in no group. It is
// locked last, behind part.mu and Conn.mu.
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

// enter notes a membership, unless the connection has ended: then it reports false. m.part.mu is
// held.
func (r *roster) enter(m *Member) bool {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	if m.c.is(closed) {
		return false
	}
	m.c.set(joined)
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
