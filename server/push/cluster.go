package push

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/myriad-go/myriad/server/push/internal/strict"
)

// This file makes the API's operations reach all nodes: each is a question to all of them, and
// every node answers for its own clients.

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

// serveQuestions makes this node answer.
func (n *node) serveQuestions() {
	serve := func(kind string, f func(operation) any) {
		n.bus.Serve(kind, func(body []byte) []byte {
			var op operation
			if err := strict.Unmarshal(body, &op); err != nil { // of a version that this one does not understand
				n.log.Warn("push: a question of another node is not understood: do all nodes have the same version?",
					"question", kind, "error", err)
				return nil
			}
			answer, err := json.Marshal(f(op))
			if err != nil {
				panic("push: an answer to another node is always JSON: " + err.Error())
			}
			return answer
		})
	}
	serve("disconnect", func(op operation) any { return n.disconnectHere(op) })
	serve("unsubscribe", func(op operation) any { return n.unsubscribeHere(op) })
	serve("subscribe", func(op operation) any { return n.subscribeHere(op) })
	serve("refresh", func(op operation) any { return n.refreshHere(op) })
	serve("channels", func(op operation) any { return n.channelsHere(op) })
	serve("connections", func(op operation) any { return n.connectionsHere(op) })
	serve("info", func(operation) any { return n.infoHere() })
	serve("state", func(operation) any { return n.viewHere() })
}

// askAll asks all nodes, and decodes each answer for each. It logs which did not answer.
func askAll[T any](ctx context.Context, n *node, kind string, op operation, each func(T)) error {
	body, err := json.Marshal(op)
	if err != nil {
		return err
	}
	ctx, cancel := n.deadline(ctx)
	defer cancel()
	strange := 0
	missing, err := n.bus.Ask(ctx, kind, body, func(answer []byte) {
		var value T
		if json.Unmarshal(answer, &value) != nil {
			strange++
			return
		}
		each(value)
	})
	if strange > 0 {
		n.log.Warn("push: nodes have answered what this one does not understand, or have not understood the question: "+
			"do all nodes have the same version?", "question", kind, "nodes", strange)
	}
	if len(missing) > 0 {
		n.log.Warn("push: nodes did not answer", "question", kind, "nodes", missing)
	}
	return err
}

// countAll returns the sum of the nodes' answers.
func (n *node) countAll(ctx context.Context, kind string, op operation) (sum int, err error) {
	err = askAll(ctx, n, kind, op, func(count int) { sum += count })
	return sum, err
}

// disconnectHere closes the connections that op selects, and returns how many.
func (n *node) disconnectHere(op operation) (count int) {
	for _, one := range n.chosen(op) {
		if one.Disconnect(Disconnect{Code: op.Code, Reason: op.Reason}) {
			count++
		}
	}
	return count
}

// unsubscribeHere ends subscriptions. The code tells client libraries not to resubscribe.
func (n *node) unsubscribeHere(op operation) (count int) {
	for _, one := range n.chosen(op) {
		if one.end(op.Channel, unsubscribedByServer) {
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

func (n *node) subscribeHere(op operation) (sum subscribed) {
	w := SubscribeCommand{}
	if op.Since != nil {
		w.Recover, w.Since = true, *op.Since
	}
	w.answer = op.Data
	for _, one := range n.chosen(op) {
		if !one.IsConnected() {
			continue
		}
		if op.Info != nil || op.ExpireAt != 0 || op.Override != nil {
			w.grant = &memberGrant{info: op.Info, expires: op.ExpireAt * int64(time.Second)}
			op.Override.apply(&w)
		}
		told, err := one.subscribeByServer(op.Channel, w)
		switch {
		case told:
			sum.Count++
		case err != nil && !errors.Is(err, ErrAlreadySubscribed):
			if !errors.As(err, &sum.Failed) {
				n.log.Error("push: a client could not be subscribed", "channel", op.Channel, "error", err)
				sum.Failed = ErrInternal
			}
			return sum
		}
	}
	return sum
}

func (n *node) refreshHere(op operation) (count int) {
	ends := time.Time{}
	if !op.Never {
		ends = time.Unix(op.ExpireAt, 0)
	}
	over := !op.Never && !ends.After(n.clock.Now())
	for _, one := range n.chosen(op) {
		if over && one.Disconnect(DisconnectExpired) || !over && one.refreshByServer(ends, op.Info) {
			count++
		}
	}
	return count
}

// channelsHere lists this node's channels that op selects.
func (n *node) channelsHere(op operation) ChannelList {
	wanted := func(name string) bool { return strings.Contains(name, op.Pattern) }
	if !op.Contains {
		glob, err := newGlob(op.Pattern)
		if err != nil {
			return ChannelList{}
		}
		wanted = glob.MatchString
	}
	return n.hub.matching(wanted, min(op.Most, mostChannels))
}

func (n *node) describe() clusterNode {
	return clusterNode{n.id.String(), n.name, n.version, n.count.connections.Load(), n.hub.channels(),
		int64(n.clock.Now().Sub(n.started) / time.Second)}
}

func (n *node) infoHere() nodeInfo {
	users := make(map[string]struct{})
	for _, s := range n.wheel.all() {
		if !s.watcher && s.IsConnected() {
			users[s.User()] = struct{}{}
		}
	}
	return nodeInfo{n.describe(), len(users), n.hub.subscriptions()}
}

// allChannels lists channels of all nodes. Each node names its op.Most largest.
func (n *node) allChannels(ctx context.Context, op operation) (ChannelList, error) {
	sizes := make(map[string]int)
	hidden := 0
	err := askAll(ctx, n, "channels", op, func(l ChannelList) {
		for _, ch := range l.Channels {
			sizes[ch.Name] += ch.Subscribers
		}
		hidden += l.Total - len(l.Channels)
	})
	all := ChannelList{Total: len(sizes) + hidden, Channels: []ChannelInfo{}}
	for name, size := range sizes {
		all.Channels = append(all.Channels, ChannelInfo{name, size})
	}
	all.trim(op.Most)
	return all, err
}

// chosen returns the sessions that op selects: all sessions of the user, or the one with that
// client or session id. If several are given, all must fit.
func (n *node) chosen(op operation) (list []*Session) {
	if op.User == "" && op.Client == "" && op.Session == "" {
		return nil
	}
	for _, one := range n.wheel.all() {
		if one.watcher {
			continue
		}
		if id := one.id.String(); op.Client != "" && id != op.Client || slices.Contains(op.Whitelist, id) {
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
