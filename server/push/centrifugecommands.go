package push

import (
	"errors"
	"fmt"
	"time"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// This file turns each command of the Centrifuge protocol into an operation, and its result into a
// reply.

func (b *batch) connect(c *centrifuge.Command) error {
	s := b.s
	ask := c.Connect
	g, err := s.connect(ConnectRequest{Token: ask.Token, Data: ask.Data, Name: ask.Name, Version: ask.Version,
		Channels: ask.Channels()})
	if err != nil {
		return b.failed(c, err)
	}
	result := centrifuge.ConnectResult{
		Client: s.ID(), Version: s.Server().Version(),
		Expires: !g.ends.IsZero() && !g.hooked, Data: b.form.answerData(g.data),
		Ping: uint32(s.Server().Timing().Ping / time.Second), Pong: s.AnswersPings(),
	}
	if result.Expires {
		result.TTL = s.Server().TTL(g.ends)
	}
	if result.Session = s.sessionID(); result.Session != "" && !b.form.uni {
		result.Node = s.Server().NodeID()
	}
	channels := g.channels
	if b.form.uni && !g.hooked {
		channels = s.alsoAsked(channels, c.Connect.Channels())
	}
	if len(channels) == 0 {
		b.connected(c, &result)
		return nil
	}
	return b.connectWith(c, &result, channels, g.infos)
}

// connectWith answers connect when the server has made the client's first subscriptions.
func (b *batch) connectWith(c *centrifuge.Command, result *centrifuge.ConnectResult, channels []string,
	infos map[string][]byte) error {
	b.flush()
	b.s.hold()
	made, err := b.s.subscribeFirst(channels, func(name string) (w subscribeRequest, err error) {
		if ask := c.Connect.Subs[name]; ask != nil {
			if w, err = requestOf(ask); err != nil {
				err = errors.Join(endBadRequest, err)
			}
		}
		if info := infos[name]; info != nil {
			w.showInfo(info)
		}
		return w, err
	})
	for _, one := range made {
		result.Subs = append(result.Subs, centrifuge.ServerSubscription{Channel: one.channel,
			SubscribeResult: b.form.subscribeResult(one.hello)})
	}
	if err == nil {
		b.connected(c, result)
	}
	first := b.form.frame(b.out)
	b.out = b.out[:0]
	if b.s.letGo(first) == offerFull {
		b.s.tooSlow("", len(first))
	}
	if err != nil && !errors.As(err, new(ending)) {
		err = errors.Join(endServerError, err)
	}
	return err
}

// connected appends the answer to connect.
func (b *batch) connected(c *centrifuge.Command, result *centrifuge.ConnectResult) {
	if b.form.uni {
		b.out = b.form.codec.AppendPush(b.out, &centrifuge.Push{Connect: result})
		return
	}
	b.reply(&centrifuge.Reply{ID: c.ID, Connect: result})
}

func (b *batch) rpc(c *centrifuge.Command) error {
	data, err := b.s.rpc(c.RPC.Method, c.RPC.Data)
	if err == nil {
		data, err = b.form.checkData(data)
	}
	if err != nil {
		return b.failed(c, err)
	}
	b.reply(&centrifuge.Reply{ID: c.ID, RPC: &centrifuge.RPCResult{Data: data}})
	return nil
}

// checkData returns data of a hook as the codec carries it.
func (f centrifugeForm) checkData(data []byte) ([]byte, error) {
	if f.codec == centrifuge.JSON && len(data) > 0 {
		return oneLineJSON(data)
	}
	return data, nil
}

// answerData is checkData for data that is left out if the codec cannot carry it.
func (f centrifugeForm) answerData(data []byte) []byte {
	data, err := f.checkData(data)
	if err != nil {
		return nil
	}
	return data
}

// refresh replaces the connection's token.
func (b *batch) refresh(c *centrifuge.Command) error {
	ttl, err := b.s.refresh(c.Refresh.Token)
	if err != nil {
		return b.failed(c, err)
	}
	b.reply(&centrifuge.Reply{ID: c.ID, Refresh: &centrifuge.RefreshResult{
		Client: b.s.ID(), Expires: ttl > 0, TTL: ttl,
	}})
	return nil
}

func (b *batch) subscribe(c *centrifuge.Command) error {
	ask := c.Subscribe
	if ask.Channel == "" {
		return errors.Join(endBadRequest, errNoChannel)
	}
	if ask.Type != 0 { // a map or a poll
		b.fail(c, failBadRequest)
		return nil
	}
	w, err := requestOf(ask)
	if err == nil {
		err = b.s.maySubscribeNow()
	}
	if err != nil {
		return b.failed(c, err)
	}
	err = b.s.subscribe(ask.Channel, w, func(hello welcome) {
		result := b.form.subscribeResult(hello)
		b.reply(&centrifuge.Reply{ID: c.ID, Subscribe: &result})
		b.flush()
	})
	return b.failed(c, err)
}

func requestOf(ask *centrifuge.SubscribeRequest) (w subscribeRequest, err error) {
	w = subscribeRequest{recover: ask.Recover, since: Position{Offset: ask.Offset, Epoch: ask.Epoch},
		complete: ask.Flag&centrifuge.FlagRejectUnrecovered != 0, notices: ask.JoinLeave, token: ask.Token,
		delta: ask.Delta == "fossil", data: ask.Data}
	switch unknown := ask.Flag &^ centrifuge.Flags; {
	case ask.Delta != "" && !w.delta:
		return w, notServed(fmt.Sprintf("the delta %q", ask.Delta))
	case unknown != 0:
		return w, notServed(fmt.Sprintf("the flag %d", unknown))
	case ask.Filter != nil:
		w.filter, err = filterOf(ask.Filter, new(filterSize), 1)
	}
	return w, err
}

// notServed is the answer to a command that asks for something that the server would not do.
func notServed(what string) error {
	return Error{Code: failBadRequest.Code, Message: failBadRequest.Message + ": " + what + " is not served"}
}

// filterOf converts a filter. The error is a failBadRequest.
func filterOf(node *centrifuge.FilterNode, size *filterSize, depth int) (*tagFilter, error) {
	if node == nil {
		return nil, failBadRequest
	}
	if err := size.grow(depth, len(node.Values)); err != nil {
		return nil, err
	}
	f := &tagFilter{op: node.Op, key: node.Key, compare: node.Compare, value: node.Value, values: node.Values}
	for _, child := range node.Nodes {
		converted, err := filterOf(child, size, depth+1)
		if err != nil {
			return nil, err
		}
		f.nodes = append(f.nodes, converted)
	}
	return f, f.prepare()
}

func (f centrifugeForm) subscribeResult(hello welcome) centrifuge.SubscribeResult {
	result := centrifuge.SubscribeResult{
		Expires: hello.expires, TTL: hello.ttl, Recoverable: hello.recoverable, Position: centrifuge.Position(hello.at),
		WasRecovering: hello.wasRecovering, Recovered: hello.recovered, Publications: f.listed(hello.publications),
		Delta: hello.delta, Data: f.answerData(hello.data),
	}
	if hello.delta {
		for i := range result.Publications {
			f.quote(&result.Publications[i])
		}
	}
	return result
}

func (b *batch) unsubscribe(c *centrifuge.Command) error {
	name := c.Unsubscribe.Channel
	if name == "" {
		return errors.Join(endBadRequest, errNoChannel)
	}
	b.s.unsubscribe(name)
	b.done(c, centrifuge.Unsubscribe)
	return nil
}

func (b *batch) publish(c *centrifuge.Command) error {
	p := c.Publish
	if p.Channel == "" {
		return errors.Join(endBadRequest, errNoChannel)
	}
	// Replies to earlier commands go first: the client may receive its own publication.
	b.flush()
	if p.Type != 0 { // into a map
		b.fail(c, failNotAvailable)
		return nil
	}
	err := b.s.publish(p.Channel, Publication{Data: p.Data, Kind: b.form.kindOf(p.Data)},
		b.form.codec == centrifuge.Protobuf)
	if err != nil {
		return b.failed(c, err)
	}
	b.done(c, centrifuge.Publish)
	return nil
}

// kindOf returns the kind of data that a client publishes. In Protobuf they are any bytes.
func (f centrifugeForm) kindOf(data []byte) Kind {
	if f.codec == centrifuge.Protobuf {
		return kindOf(data)
	}
	return JSON
}

// subRefresh replaces the token of a subscription.
func (b *batch) subRefresh(c *centrifuge.Command) error {
	ask := c.SubRefresh
	if ask.Channel == "" {
		return errors.Join(endBadRequest, errNoChannel)
	}
	if ask.Type != 0 { // of a map or a poll
		b.fail(c, failBadRequest)
		return nil
	}
	ttl, err := b.s.refreshSubscription(ask.Channel, ask.Token)
	if err != nil {
		return b.failed(c, err)
	}
	b.reply(&centrifuge.Reply{ID: c.ID, SubRefresh: &centrifuge.RefreshResult{Expires: ttl > 0, TTL: ttl}})
	return nil
}

func (b *batch) history(c *centrifuge.Command) error {
	ask := c.History
	if ask.Channel == "" {
		return errors.Join(endBadRequest, errNoChannel)
	}
	h, err := b.s.history(ask.Channel, Query{Since: (*Position)(ask.Since), Limit: int(ask.Limit),
		Reverse: ask.Reverse})
	if err != nil {
		return b.failed(c, err)
	}
	b.reply(&centrifuge.Reply{ID: c.ID, History: b.form.historyResult(h)})
	return nil
}

func (f centrifugeForm) historyResult(h History) *centrifuge.HistoryResult {
	return &centrifuge.HistoryResult{Publications: f.listed(h.Publications), Position: centrifuge.Position(h.Top)}
}

func (b *batch) presence(c *centrifuge.Command) error {
	name := c.Presence.Channel
	if name == "" {
		return errors.Join(endBadRequest, errNoChannel)
	}
	there, err := b.s.presence(name, false)
	if err != nil {
		return b.failed(c, err)
	}
	b.reply(&centrifuge.Reply{ID: c.ID, Presence: shownPresence(there.Clients)})
	return nil
}

func shownPresence(list []ClientInfo) *centrifuge.PresenceResult {
	shown := make([]centrifuge.ClientInfo, len(list))
	for i, info := range list {
		shown[i] = centrifuge.ClientInfo(info)
	}
	return &centrifuge.PresenceResult{Clients: shown}
}

func (b *batch) presenceStats(c *centrifuge.Command) error {
	name := c.PresenceStats.Channel
	if name == "" {
		return errors.Join(endBadRequest, errNoChannel)
	}
	there, err := b.s.presence(name, true)
	if err != nil {
		return b.failed(c, err)
	}
	b.reply(&centrifuge.Reply{ID: c.ID, Stats: &centrifuge.PresenceStatsResult{
		Clients: there.Count, Users: there.Users,
	}})
	return nil
}
