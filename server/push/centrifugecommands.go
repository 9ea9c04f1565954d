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
	g, err := s.Connect(ConnectRequest{Token: ask.Token, Data: ask.Data, Name: ask.Name, Version: ask.Version,
		Channels: ask.Channels()})
	if err != nil {
		return b.failed(c, err)
	}
	result := centrifuge.ConnectResult{
		Client: s.ID(), Version: s.Server().Version(),
		Expires: !g.Ends.IsZero() && !g.Hooked, Data: b.form.answerData(g.Data),
		Ping: uint32(s.Server().Timing().Ping / time.Second), Pong: s.AnswersPings(),
	}
	if result.Expires {
		result.TTL = s.Server().TTL(g.Ends)
	}
	if result.Session = s.SessionID(); result.Session != "" && !b.form.uni {
		result.Node = s.Server().NodeID()
	}
	channels := g.Channels
	if b.form.uni && !g.Hooked {
		channels = s.AlsoAsked(channels, c.Connect.Channels())
	}
	if len(channels) == 0 {
		b.connected(c, &result)
		return nil
	}
	return b.connectWith(c, &result, channels, g.Infos)
}

// connectWith answers connect when the server has made the client's first subscriptions.
func (b *batch) connectWith(c *centrifuge.Command, result *centrifuge.ConnectResult, channels []string,
	infos map[string][]byte) error {
	b.flush()
	b.s.Hold()
	made, err := b.s.SubscribeFirst(channels, func(name string) (w SubscribeCommand, err error) {
		if ask := c.Connect.Subs[name]; ask != nil {
			if w, err = requestOf(ask); err != nil {
				err = errors.Join(DisconnectBadRequest, err)
			}
		}
		if info := infos[name]; info != nil {
			w.ShowInfo(info)
		}
		return w, err
	})
	for _, one := range made {
		result.Subs = append(result.Subs, centrifuge.ServerSubscription{Channel: one.Channel,
			SubscribeResult: b.form.subscribeResult(one.Welcome)})
	}
	if err == nil {
		b.connected(c, result)
	}
	first := b.form.frame(b.out)
	b.out = b.out[:0]
	if b.s.LetGo(first) == OfferFull {
		b.s.TooSlow("", len(first))
	}
	if err != nil && !errors.As(err, new(Disconnect)) {
		err = errors.Join(DisconnectServerError, err)
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
	data, err := b.s.RPC(c.RPC.Method, c.RPC.Data)
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
		return CompactJSON(data)
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
	ttl, err := b.s.Refresh(c.Refresh.Token)
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
		return errors.Join(DisconnectBadRequest, errNoChannel)
	}
	if ask.Type != 0 { // a map or a poll
		b.fail(c, ErrBadRequest)
		return nil
	}
	w, err := requestOf(ask)
	if err == nil {
		err = b.s.MaySubscribeNow()
	}
	if err != nil {
		return b.failed(c, err)
	}
	err = b.s.Subscribe(ask.Channel, w, func(hello Welcome) {
		result := b.form.subscribeResult(hello)
		b.reply(&centrifuge.Reply{ID: c.ID, Subscribe: &result})
		b.flush()
	})
	return b.failed(c, err)
}

func requestOf(ask *centrifuge.SubscribeRequest) (w SubscribeCommand, err error) {
	w = SubscribeCommand{Recover: ask.Recover, Since: Position{Offset: ask.Offset, Epoch: ask.Epoch},
		Complete: ask.Flag&centrifuge.FlagRejectUnrecovered != 0, JoinLeave: ask.JoinLeave, Token: ask.Token,
		Delta: ask.Delta == "fossil", Data: ask.Data}
	switch unknown := ask.Flag &^ centrifuge.Flags; {
	case ask.Delta != "" && !w.Delta:
		return w, notServed(fmt.Sprintf("the delta %q", ask.Delta))
	case unknown != 0:
		return w, notServed(fmt.Sprintf("the flag %d", unknown))
	case ask.Filter != nil:
		w.Filter, err = filterOf(ask.Filter, new(FilterSize), 1)
	}
	return w, err
}

// notServed is the answer to a command that asks for something that the server would not do.
func notServed(what string) error {
	return Error{Code: ErrBadRequest.Code, Message: ErrBadRequest.Message + ": " + what + " is not served"}
}

// filterOf converts a filter. The error is a ErrBadRequest.
func filterOf(node *centrifuge.FilterNode, size *FilterSize, depth int) (*TagFilter, error) {
	if node == nil {
		return nil, ErrBadRequest
	}
	if err := size.Grow(depth, len(node.Values)); err != nil {
		return nil, err
	}
	f := &TagFilter{Op: node.Op, Key: node.Key, Compare: node.Compare, Value: node.Value, Values: node.Values}
	for _, child := range node.Nodes {
		converted, err := filterOf(child, size, depth+1)
		if err != nil {
			return nil, err
		}
		f.Nodes = append(f.Nodes, converted)
	}
	return f, f.Prepare()
}

func (f centrifugeForm) subscribeResult(hello Welcome) centrifuge.SubscribeResult {
	result := centrifuge.SubscribeResult{
		Expires: hello.Expires, TTL: hello.TTL, Recoverable: hello.Recoverable, Position: centrifuge.Position(hello.At),
		WasRecovering: hello.WasRecovering, Recovered: hello.Recovered, Publications: f.listed(hello.Publications),
		Delta: hello.Delta, Data: f.answerData(hello.Data),
	}
	if hello.Delta {
		for i := range result.Publications {
			f.quote(&result.Publications[i])
		}
	}
	return result
}

func (b *batch) unsubscribe(c *centrifuge.Command) error {
	name := c.Unsubscribe.Channel
	if name == "" {
		return errors.Join(DisconnectBadRequest, errNoChannel)
	}
	b.s.Unsubscribe(name)
	b.done(c, centrifuge.Unsubscribe)
	return nil
}

func (b *batch) publish(c *centrifuge.Command) error {
	p := c.Publish
	if p.Channel == "" {
		return errors.Join(DisconnectBadRequest, errNoChannel)
	}
	// Replies to earlier commands go first: the client may receive its own publication.
	b.flush()
	if p.Type != 0 { // into a map
		b.fail(c, ErrNotAvailable)
		return nil
	}
	err := b.s.Publish(p.Channel, Publication{Data: p.Data, Kind: b.form.kindOf(p.Data)},
		b.form.codec == centrifuge.Protobuf)
	if err != nil {
		return b.failed(c, err)
	}
	b.done(c, centrifuge.Publish)
	return nil
}

// KindOf returns the kind of data that a client publishes. In Protobuf they are any bytes.
func (f centrifugeForm) kindOf(data []byte) Kind {
	if f.codec == centrifuge.Protobuf {
		return KindOf(data)
	}
	return JSON
}

// subRefresh replaces the token of a subscription.
func (b *batch) subRefresh(c *centrifuge.Command) error {
	ask := c.SubRefresh
	if ask.Channel == "" {
		return errors.Join(DisconnectBadRequest, errNoChannel)
	}
	if ask.Type != 0 { // of a map or a poll
		b.fail(c, ErrBadRequest)
		return nil
	}
	ttl, err := b.s.RefreshSubscription(ask.Channel, ask.Token)
	if err != nil {
		return b.failed(c, err)
	}
	b.reply(&centrifuge.Reply{ID: c.ID, SubRefresh: &centrifuge.RefreshResult{Expires: ttl > 0, TTL: ttl}})
	return nil
}

func (b *batch) history(c *centrifuge.Command) error {
	ask := c.History
	if ask.Channel == "" {
		return errors.Join(DisconnectBadRequest, errNoChannel)
	}
	h, err := b.s.History(ask.Channel, Query{Since: (*Position)(ask.Since), Limit: int(ask.Limit),
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
		return errors.Join(DisconnectBadRequest, errNoChannel)
	}
	there, err := b.s.Presence(name, false)
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
		return errors.Join(DisconnectBadRequest, errNoChannel)
	}
	there, err := b.s.Presence(name, true)
	if err != nil {
		return b.failed(c, err)
	}
	b.reply(&centrifuge.Reply{ID: c.ID, Stats: &centrifuge.PresenceStatsResult{
		Clients: there.Count, Users: there.Users,
	}})
	return nil
}
