package push

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/strict"
)

// This file makes calls of the server reach all nodes: each is a question to all of them, and every
// node answers for its own clients.

// An operation is the body of such a question. A node does not answer one with a field that it does
// not know: to leave that out could act on more clients than was asked for.
type operation struct {
	Channel   string    `json:",omitempty"`
	Client    string    `json:",omitempty"`
	User      string    `json:",omitempty"`
	Session   string    `json:",omitempty"`
	Whitelist []string  `json:",omitempty"`
	Code      uint16    `json:",omitempty"`
	Reason    string    `json:",omitempty"`
	Pattern   string    `json:",omitempty"` // of channels, as in the API; or with Contains a part of the name
	Contains  bool      `json:",omitempty"` // also of User, in a list of connections
	Most      int       `json:",omitempty"` // channels in the answer
	Since     *Position `json:",omitempty"`
	ExpireAt  int64     `json:",omitempty"` // seconds since 1970; 0: at once, or for a subscription never
	Never     bool      `json:",omitempty"` // the connections do not expire
	Override  *Override `json:",omitempty"`
	Info      []byte    `json:",omitempty"`
	Data      []byte    `json:",omitempty"` // for the client, with the news of its subscription
}

// A clusterNode is what a node says of itself, in the form of the API's info.
type clusterNode struct {
	ID       string `json:"uid"`
	Name     string `json:"name"`
	Version  string `json:"version"`
	Clients  int64  `json:"num_clients"`
	Channels int    `json:"num_channels"`
	Uptime   int64  `json:"uptime"` // seconds
}

// A nodeInfo is the same with figures for which the node asks all its sessions and channels.
type nodeInfo struct {
	clusterNode
	Users         int `json:"num_users"` // those without a name count as one
	Subscriptions int `json:"num_subs"`
}

// A cluster asks all nodes, this one included, and answers for this one.
type cluster struct {
	hub           *hub.Hub
	bus           bus.Bus
	log           *slog.Logger
	name, version string // of this node
	clock         Clock
	started       time.Time
}

// newCluster returns the cluster of a node, which answers from now on.
func newCluster(h *hub.Hub, config Config) *cluster {
	c := &cluster{h, config.Bus, config.Logger, config.Node, config.Version, config.Clock, config.Clock.Now()}
	c.serve()
	return c
}

// serve makes this node answer until it has shut down.
func (c *cluster) serve() {
	serve := func(kind string, f func(operation) any) {
		stop := c.bus.Serve(kind, func(body []byte) []byte {
			var op operation
			if err := strict.Unmarshal(body, &op); err != nil { // of a version that this one does not understand
				c.log.Warn("push: a question of another node is not understood: do all nodes have the same version?",
					"question", kind, "error", err)
				return nil
			}
			answer, err := json.Marshal(f(op))
			if err != nil {
				panic("push: an answer to another node is always JSON: " + err.Error())
			}
			return answer
		})
		c.hub.OnClose(stop)
	}
	serve("disconnect", func(op operation) any { return c.disconnectHere(op) })
	serve("unsubscribe", func(op operation) any { return c.unsubscribeHere(op) })
	serve("subscribe", func(op operation) any { return c.subscribeHere(op) })
	serve("refresh", func(op operation) any { return c.refreshHere(op) })
	serve("channels", func(op operation) any { return c.channelsHere(op) })
	serve("connections", func(op operation) any { return c.connectionsHere(op) })
	serve("info", func(operation) any { return c.infoHere() })
	serve("state", func(operation) any { return c.viewHere() })
}

// askAll asks all nodes, and decodes each answer for each. It logs which did not answer.
func askAll[T any](ctx context.Context, c *cluster, kind string, op operation, each func(T)) error {
	body, err := json.Marshal(op)
	if err != nil {
		return err
	}
	ctx, cancel := c.hub.BusDeadline(ctx)
	defer cancel()
	strange := 0
	missing, err := c.bus.Ask(ctx, kind, body, func(answer []byte) {
		var value T
		if json.Unmarshal(answer, &value) != nil {
			strange++
			return
		}
		each(value)
	})
	if strange > 0 {
		c.log.Warn("push: nodes have answered what this one does not understand, or have not understood the question: "+
			"do all nodes have the same version?", "question", kind, "nodes", strange)
	}
	if len(missing) > 0 {
		c.log.Warn("push: nodes did not answer", "question", kind, "nodes", missing)
	}
	return err
}

// countAll returns the sum of the nodes' answers.
func (c *cluster) countAll(ctx context.Context, kind string, op operation) (sum int, err error) {
	err = askAll(ctx, c, kind, op, func(count int) { sum += count })
	return sum, err
}

// disconnectHere closes the connections that op selects, and returns how many.
func (c *cluster) disconnectHere(op operation) (count int) {
	for _, one := range c.chosen(op) {
		if one.Disconnect(Disconnect{Code: op.Code, Reason: op.Reason}) {
			count++
		}
	}
	return count
}

// unsubscribeHere ends subscriptions. The code tells client libraries not to resubscribe.
func (c *cluster) unsubscribeHere(op operation) (count int) {
	for _, one := range c.chosen(op) {
		if one.EndSubscription(op.Channel) {
			count++
		}
	}
	return count
}

// subscribed is the answer to "subscribe": how many clients are subscribed now, and why one is not.
type subscribed struct {
	Count  int
	Failed Error
}

func (c *cluster) subscribeHere(op operation) (sum subscribed) {
	for _, one := range c.chosen(op) {
		if !one.IsConnected() {
			continue
		}
		w := hub.SubscribeCommand{}
		if op.Since != nil {
			w.Recover, w.Since = true, *op.Since
		}
		w.GrantByServer(op.Info, op.Data, op.ExpireAt, op.Override)
		told, err := one.SubscribeByServer(op.Channel, w)
		switch {
		case told:
			sum.Count++
		case err != nil && !errors.Is(err, ErrAlreadySubscribed):
			if !errors.As(err, &sum.Failed) {
				c.log.Error("push: a client could not be subscribed", "channel", op.Channel, "error", err)
				sum.Failed = ErrInternal
			}
			return sum
		}
	}
	return sum
}

func (c *cluster) refreshHere(op operation) (count int) {
	ends := time.Time{}
	if !op.Never {
		ends = time.Unix(op.ExpireAt, 0)
	}
	over := !op.Never && !ends.After(c.clock.Now())
	for _, one := range c.chosen(op) {
		if over && one.Disconnect(answer.DisconnectExpired) || !over && one.RefreshByServer(ends, op.Info) {
			count++
		}
	}
	return count
}

// channelsHere lists this node's channels that op selects.
func (c *cluster) channelsHere(op operation) ChannelList {
	wanted := func(name string) bool { return strings.Contains(name, op.Pattern) }
	if !op.Contains {
		glob, err := policy.NewGlob(op.Pattern)
		if err != nil {
			return ChannelList{}
		}
		wanted = glob.MatchString
	}
	return c.hub.MatchingChannels(wanted, min(op.Most, mostChannels))
}

func (c *cluster) describe() clusterNode {
	counts := c.hub.Counts()
	return clusterNode{c.hub.NodeID(), c.name, c.version, counts.Connections, counts.Channels,
		int64(c.clock.Now().Sub(c.started) / time.Second)}
}

func (c *cluster) infoHere() nodeInfo {
	users := make(map[string]struct{})
	for _, s := range c.hub.Clients() {
		if s.IsConnected() {
			users[s.User()] = struct{}{}
		}
	}
	return nodeInfo{c.describe(), len(users), c.hub.Subscriptions()}
}

// allChannels lists channels of all nodes. Each node names its op.Most largest.
func (c *cluster) allChannels(ctx context.Context, op operation) (ChannelList, error) {
	sizes := make(map[string]int)
	hidden := 0
	err := askAll(ctx, c, "channels", op, func(l ChannelList) {
		for _, ch := range l.Channels {
			sizes[ch.Name] += ch.Subscribers
		}
		hidden += l.Total - len(l.Channels)
	})
	all := ChannelList{Total: len(sizes) + hidden, Channels: []ChannelInfo{}}
	for name, size := range sizes {
		all.Channels = append(all.Channels, ChannelInfo{Name: name, Subscribers: size})
	}
	all.Trim(op.Most)
	return all, err
}

// chosen returns the sessions that op selects: all sessions of the user, or the one with that
// client or session id. If several are given, all must fit.
func (c *cluster) chosen(op operation) (list []*hub.Session) {
	if op.User == "" && op.Client == "" && op.Session == "" {
		return nil
	}
	for _, one := range c.hub.Clients() {
		if id := one.ID(); op.Client != "" && id != op.Client || slices.Contains(op.Whitelist, id) {
			continue
		}
		if op.Session != "" && one.SessionID() != op.Session {
			continue
		}
		if op.User == "" || one.IsConnected() && one.User() == op.User {
			list = append(list, one)
		}
	}
	return list
}

// A NodeView is how one node is doing, as it says itself.
type NodeView struct {
	clusterNode
	Problem string   `json:"problem"` // why it does not have what the others publish; empty if it does
	Lag     uint64   `json:"lag"`     // messages of logs that it has not received yet
	Led     int      `json:"led"`     // logs that it leads
	Hears   []string `json:"hears"`   // the other nodes from which it has a sign of life
}

func (c *cluster) viewHere() NodeView {
	state := c.bus.State()
	view := NodeView{clusterNode: c.describe(), Problem: state.Problem, Lag: lagOf(state), Led: ledBy(state, c.name),
		Hears: []string{}}
	for _, other := range state.Nodes {
		if !other.Self && heardOf(other) {
			view.Hears = append(view.Hears, other.Name)
		}
	}
	return view
}

// heardOf reports whether node n is itself, or has given a sign of life lately.
func heardOf(n bus.NodeState) bool { return n.Self || n.Seen < silentNode }

// lagOf returns how many messages of logs this node has not received yet.
func lagOf(s bus.State) (messages uint64) {
	for _, l := range s.Logs {
		messages += l.Last - min(l.Followed, l.Last)
	}
	return messages
}

// ledBy returns how many logs the node leads.
func ledBy(s bus.State, node string) (logs int) {
	for _, l := range s.Logs {
		if l.Leader == node {
			logs++
		}
	}
	return logs
}

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

// connectionsHere lists this node's connections that op selects.
func (c *cluster) connectionsHere(op operation) ConnectionList {
	most := min(op.Most, mostConnections)
	var found []foundSession
	l := ConnectionList{Connections: []ConnectionInfo{}}
	for _, s := range c.hub.Clients() {
		if !s.IsConnected() {
			continue
		}
		one := foundSession{s, s.User(), s.ID()}
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
		info := one.s.Info()
		info.Node = c.name
		if bytes += sizeOf(&info); bytes > connectionBytes {
			break
		}
		l.Connections = append(l.Connections, info)
	}
	return l
}

// A foundSession is a session with what sorts it.
type foundSession struct {
	s            *hub.Session
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

// allConnections lists connections of all nodes. Each node names its first op.Most.
func (c *cluster) allConnections(ctx context.Context, op operation) (all ConnectionList, err error) {
	all.Connections = []ConnectionInfo{}
	err = askAll(ctx, c, "connections", op, func(l ConnectionList) {
		all.Total += l.Total
		all.Connections = append(all.Connections, l.Connections...)
	})
	slices.SortFunc(all.Connections, func(a, b ConnectionInfo) int {
		return cmp.Or(strings.Compare(a.User, b.User), strings.Compare(a.Client, b.Client))
	})
	all.Connections = all.Connections[:min(len(all.Connections), op.Most)]
	return all, err
}

// sizeOf estimates the bytes of the description.
func sizeOf(c *ConnectionInfo) (n int) {
	const fields = 256
	n = fields + len(c.User)
	for _, name := range c.Channels {
		n += len(name) + len(`"",`)
	}
	return n
}
