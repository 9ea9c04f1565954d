package push

import (
	"cmp"
	"context"
	"slices"
	"strings"
)

// This file lists connections, for the API and for the console.

const (
	// mostConnections bounds the connections of one answer of the API.
	mostConnections = 1000
	// connectionBytes bounds what the answer of one node says of connections. Those beyond it are
	// left out.
	connectionBytes = 1 << 20
)

// A ConnectionList is the connections that an operation selects, in the order of users and ids.
type ConnectionList struct {
	Total       int              `json:"total"` // that are selected, listed or not
	Connections []ConnectionInfo `json:"connections"`
}

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

// connectionsHere lists this node's connections that op selects.
func (n *node) connectionsHere(op operation) ConnectionList {
	most := min(op.Most, mostConnections)
	var found []foundSession
	l := ConnectionList{Connections: []ConnectionInfo{}}
	for _, s := range n.wheel.all() {
		if s.watcher || !s.IsConnected() {
			continue
		}
		one := foundSession{s, s.User(), s.id.String()}
		if !op.selects(one.user, one.client) {
			continue
		}
		l.Total++
		if found = append(found, one); len(found) == 2*most+1 {
			found = firstSessions(found, most)
		}
	}
	bytes := 0
	for _, one := range firstSessions(found, most) {
		info := one.s.describe()
		if bytes += info.size(); bytes > connectionBytes {
			break
		}
		l.Connections = append(l.Connections, info)
	}
	return l
}

// A foundSession is a session with what sorts it.
type foundSession struct {
	s            *Session
	user, client string
}

// firstSessions sorts list, and returns its first `most`.
func firstSessions(list []foundSession, most int) []foundSession {
	slices.SortFunc(list, func(a, b foundSession) int {
		return cmp.Or(strings.Compare(a.user, b.user), strings.Compare(a.client, b.client))
	})
	return list[:min(len(list), most)]
}

// selects reports whether op selects the connection: by its user, or with Contains by a part of its
// user or the beginning of its id.
func (op *operation) selects(user, client string) bool {
	if op.Contains {
		return strings.Contains(user, op.User) || strings.HasPrefix(client, op.User)
	}
	return op.User == "" || user == op.User
}

// describe returns what operators may know of the session.
func (s *Session) describe() ConnectionInfo {
	info := ConnectionInfo{Client: s.id.String(), User: s.User(), Node: s.node.name, Remote: s.t.Remote(),
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

// size estimates the bytes of the description.
func (c *ConnectionInfo) size() (n int) {
	const fields = 256
	n = fields + len(c.User)
	for _, name := range c.Channels {
		n += len(name) + len(`"",`)
	}
	return n
}

// allConnections lists connections of all nodes. Each node names its first op.Most.
func (n *node) allConnections(ctx context.Context, op operation) (all ConnectionList, err error) {
	all.Connections = []ConnectionInfo{}
	err = askAll(ctx, n, "connections", op, func(l ConnectionList) {
		all.Total += l.Total
		all.Connections = append(all.Connections, l.Connections...)
	})
	slices.SortFunc(all.Connections, func(a, b ConnectionInfo) int {
		return cmp.Or(strings.Compare(a.User, b.User), strings.Compare(a.Client, b.Client))
	})
	all.Connections = all.Connections[:min(len(all.Connections), op.Most)]
	return all, err
}
