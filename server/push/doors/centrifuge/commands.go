package centrifuge

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/policy"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// This file runs the commands of one message, turns each into an operation of the session, and
// sends their replies in one message.

var (
	errTooManyCommands = errors.New("push: more commands in a frame than Limits.Commands")
	errNoID            = errors.New("push: a command without an id")
	errNoChannel       = errors.New("push: a command without a channel")
	errUnknownMethod   = errors.New("push: a command without a method of the protocol")
)

// RunMessage runs one message of a client, and sends the replies. The session has one of the door's
// forms. Its messages are run one at a time, in their order. RunMessage does not keep p. It is for
// who carries the protocol over another transport.
func RunMessage(s *hub.Session, p []byte) {
	if s.Form().(form).uni {
		runConnectRequest(s, p)
		return
	}
	runCommands(s, p)
}

// runCommands runs one message of a client that sends commands. The transport makes one call at a
// time. runCommands does not keep p.
func runCommands(s *hub.Session, p []byte) {
	runBatch(s, func(b *batch) error { return b.runAll(p) })
}

// runConnectRequest runs the one message of a client that only receives: a connect request. Later
// messages are pongs, or are ignored.
func runConnectRequest(s *hub.Session, p []byte) {
	if s.IsConnected() {
		return
	}
	runBatch(s, func(b *batch) error {
		request, err := b.form.codec.ParseConnect(p)
		if err != nil {
			return errors.Join(answer.DisconnectBadRequest, err)
		}
		err = b.connect(&centrifuge.Command{ID: 1, Connect: &request})
		if err == nil && b.s.IsConnectRefused() {
			b.s.Disconnect(endingOf(b.refusal))
		}
		return err
	})
}

// endingOf returns how a client is told of an error that has no replies. The client comes back
// unless it may not be here, as with a centrifuge server.
func endingOf(e answer.Error) answer.Disconnect {
	switch e.Code {
	case answer.ErrTokenExpired.Code:
		return answer.DisconnectExpired
	case answer.ErrTooManyRequests.Code:
		return answer.DisconnectTooManyRequests
	case answer.ErrPermissionDenied.Code:
		return answer.DisconnectPermissionDenied
	}
	return answer.DisconnectServerError
}

func runBatch(s *hub.Session, run func(*batch) error) {
	if s.IsClosing() {
		return
	}
	b := batches.Get().(*batch)
	b.s, b.form, b.refusal = s, s.Form().(form), answer.Error{}
	err := run(b)
	b.flush()
	b.s = nil
	batches.Put(b)
	if err != nil {
		s.DisconnectFor(err)
	}
}

// A batch collects the replies to one message, so that they leave in one message.
type batch struct {
	s    *hub.Session
	form form
	out  []byte

	refusal answer.Error // of connect, for a client that gets no replies
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// runAll runs the commands of a message until one ends the connection. The error has the reason.
func (b *batch) runAll(p []byte) error {
	for count := 1; ; count++ {
		if count > b.s.Hub().Limits().Commands {
			return errors.Join(answer.DisconnectBadRequest, errTooManyCommands)
		}
		n, c, err := b.form.codec.Parse(p)
		if err != nil {
			return errors.Join(answer.DisconnectBadRequest, err)
		}
		if err := b.run(&c); err != nil {
			return err
		}
		p = p[n:]
		if len(p) == 0 || b.s.IsConnectRefused() {
			return nil // the rest of the message relies on the connect that was refused
		}
	}
}

// run answers one command, or returns why the connection must end. It makes the checks in the order
// of a centrifuge server.
func (b *batch) run(c *centrifuge.Command) error {
	if c.Connect != nil && c.ID != 0 {
		return b.connect(c)
	}
	switch err := b.s.MustBeConnected(); {
	case err != nil:
		return err
	case c.IsPong():
		return b.s.Pong()
	case c.ID == 0 && c.Send == nil:
		return errors.Join(answer.DisconnectBadRequest, errNoID)
	}
	if refused, err := b.aboveRate(c); refused {
		return err
	}
	switch c.Method() {
	case centrifuge.Ping:
		b.done(c, centrifuge.Ping)
		return nil
	case centrifuge.Send:
		return b.s.Message(c.Send.Data) // the protocol has no reply for this
	case centrifuge.RPC:
		return b.rpc(c)
	case centrifuge.Refresh:
		return b.refresh(c)
	case centrifuge.None:
		return errors.Join(answer.DisconnectBadRequest, errUnknownMethod)
	}
	return b.runInChannel(c)
}

// aboveRate refuses a command above Rates.UserCommands or Rates.AddressCommands. Subscribe and
// publish have limits of their own; the others cost nothing that lasts.
func (b *batch) aboveRate(c *centrifuge.Command) (refused bool, _ error) {
	m := c.Method()
	switch m {
	case centrifuge.Send, centrifuge.RPC, centrifuge.Refresh, centrifuge.SubRefresh, centrifuge.History,
		centrifuge.Presence, centrifuge.PresenceStats:
	default:
		return false, nil
	}
	err := b.s.MayCommandNow(m.String())
	if err == nil || m == centrifuge.Send { // which has no reply
		return err != nil, nil
	}
	return true, b.failed(c, err)
}

// runInChannel answers a command that names a channel.
func (b *batch) runInChannel(c *centrifuge.Command) error {
	switch c.Method() {
	case centrifuge.Subscribe:
		return b.subscribe(c)
	case centrifuge.Unsubscribe:
		return b.unsubscribe(c)
	case centrifuge.Publish:
		return b.publish(c)
	case centrifuge.SubRefresh:
		return b.subRefresh(c)
	case centrifuge.History:
		return b.history(c)
	case centrifuge.Presence:
		return b.presence(c)
	case centrifuge.PresenceStats:
		return b.presenceStats(c)
	}
	b.fail(c, answer.ErrNotAvailable)
	return nil
}

// failed answers c with err. If err ends the connection, failed returns it.
func (b *batch) failed(c *centrifuge.Command, err error) error {
	if err == nil {
		return nil
	}
	if reason := new(answer.Disconnect); errors.As(err, reason) {
		return err
	}
	shown := answer.ErrInternal
	switch {
	case errors.As(err, &shown):
	case errors.Is(err, answer.ErrDraining):
		shown.Message = "the server is shutting down"
	case errors.Is(err, answer.ErrOverloaded):
		shown = answer.ErrTooManyRequests
	default:
		b.s.Hub().Logger().Error("push: a command failed", "client", b.s.ID(), "method", c.Method().String(),
			"error",
			err)
	}
	if shown == answer.ErrPermissionDenied && !b.form.uni && !hub.IsHookRefusal(err) {
		b.s.CountRefusal(hub.RefusedPermission, fmt.Errorf("%v %q: %w", c.Method(),
			c.Channel(), err))
	}
	b.fail(c, shown)
	return nil
}

func (b *batch) fail(c *centrifuge.Command, e answer.Error) {
	if b.form.uni {
		b.refusal = e // the ending follows
		return
	}
	answer := centrifuge.Error(e)
	b.reply(&centrifuge.Reply{ID: c.ID, Error: &answer})
}

func (b *batch) done(c *centrifuge.Command, m centrifuge.Method) {
	b.reply(&centrifuge.Reply{ID: c.ID, Method: m})
}

func (b *batch) reply(r *centrifuge.Reply) { b.out = b.form.codec.AppendReply(b.out, r) }

// flush sends the replies so far. A client that does not read its replies is treated as slow.
func (b *batch) flush() {
	if len(b.out) == 0 {
		return
	}
	b.s.Tell("", &hub.Message{Payload: b.form.frame(b.out)})
	b.out = b.out[:0]
}

func (b *batch) connect(c *centrifuge.Command) error {
	s := b.s
	ask := c.Connect
	g, err := s.Connect(hub.ConnectRequest{Token: ask.Token, Data: ask.Data, Name: ask.Name, Version: ask.Version,
		Channels: ask.Channels()})
	if err != nil {
		return b.failed(c, err)
	}
	result := centrifuge.ConnectResult{
		Client: s.ID(), Version: s.Hub().Version(),
		Expires: !g.Ends.IsZero() && !g.Hooked, Data: b.form.answerData(g.Data),
		Ping: uint32(s.Hub().Timing().Ping / time.Second), Pong: s.AnswersPings(),
	}
	if result.Expires {
		result.TTL = s.Hub().TTL(g.Ends)
	}
	if result.Session = s.SessionID(); result.Session != "" && !b.form.uni {
		result.Node = s.Hub().NodeID()
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
	made, err := b.s.SubscribeFirst(channels, func(name string) (w hub.SubscribeCommand, err error) {
		if ask := c.Connect.Subs[name]; ask != nil {
			if w, err = requestOf(ask); err != nil {
				err = errors.Join(answer.DisconnectBadRequest, err)
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
	if b.s.ReleaseHeld(first) == hub.OfferFull {
		b.s.TooSlow("", len(first))
	}
	if err != nil && !errors.As(err, new(answer.Disconnect)) {
		err = errors.Join(answer.DisconnectServerError, err)
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
func (f form) checkData(data []byte) ([]byte, error) {
	if f.codec == centrifuge.JSON && len(data) > 0 {
		return hub.CompactJSON(data)
	}
	return data, nil
}

// answerData is checkData for data that is left out if the codec cannot carry it.
func (f form) answerData(data []byte) []byte {
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
		return errors.Join(answer.DisconnectBadRequest, errNoChannel)
	}
	if ask.Type != 0 { // a map or a poll
		b.fail(c, answer.ErrBadRequest)
		return nil
	}
	w, err := requestOf(ask)
	if err == nil {
		err = b.s.MaySubscribeNow()
	}
	if err != nil {
		return b.failed(c, err)
	}
	err = b.s.Subscribe(ask.Channel, w, func(hello hub.Welcome) {
		result := b.form.subscribeResult(hello)
		b.reply(&centrifuge.Reply{ID: c.ID, Subscribe: &result})
		b.flush()
	})
	return b.failed(c, err)
}

func requestOf(ask *centrifuge.SubscribeRequest) (w hub.SubscribeCommand, err error) {
	w = hub.SubscribeCommand{Recover: ask.Recover, Since: bus.Position{Offset: ask.Offset, Epoch: ask.Epoch},
		Complete: ask.Flag&centrifuge.FlagRejectUnrecovered != 0, JoinLeave: ask.JoinLeave, Token: ask.Token,
		Delta: ask.Delta == "fossil", Data: ask.Data}
	switch unknown := ask.Flag &^ centrifuge.Flags; {
	case ask.Delta != "" && !w.Delta:
		return w, notServed(fmt.Sprintf("the delta %q", ask.Delta))
	case unknown != 0:
		return w, notServed(fmt.Sprintf("the flag %d", unknown))
	case ask.Filter != nil:
		w.Filter, err = filterOf(ask.Filter, new(policy.FilterSize), 1)
	}
	return w, err
}

// notServed is the answer to a command that asks for something that the server would not do.
func notServed(what string) error {
	return answer.Error{Code: answer.ErrBadRequest.Code,
		Message: answer.ErrBadRequest.Message + ": " + what + " is not served"}
}

// filterOf converts a filter. The error is a ErrBadRequest.
func filterOf(node *centrifuge.FilterNode, size *policy.FilterSize, depth int) (*policy.TagFilter, error) {
	if node == nil {
		return nil, answer.ErrBadRequest
	}
	if err := size.Grow(depth, len(node.Values)); err != nil {
		return nil, err
	}
	f := &policy.TagFilter{Op: node.Op, Key: node.Key, Compare: node.Compare, Value: node.Value, Values: node.Values}
	for _, child := range node.Nodes {
		converted, err := filterOf(child, size, depth+1)
		if err != nil {
			return nil, err
		}
		f.Nodes = append(f.Nodes, converted)
	}
	return f, f.Prepare()
}

func (f form) subscribeResult(hello hub.Welcome) centrifuge.SubscribeResult {
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
		return errors.Join(answer.DisconnectBadRequest, errNoChannel)
	}
	b.s.Unsubscribe(name)
	b.done(c, centrifuge.Unsubscribe)
	return nil
}

func (b *batch) publish(c *centrifuge.Command) error {
	p := c.Publish
	if p.Channel == "" {
		return errors.Join(answer.DisconnectBadRequest, errNoChannel)
	}
	// Replies to earlier commands go first: the client may receive its own publication.
	b.flush()
	if p.Type != 0 { // into a map
		b.fail(c, answer.ErrNotAvailable)
		return nil
	}
	err := b.s.Publish(p.Channel, bus.Publication{Data: p.Data, Kind: b.form.kindOf(p.Data)},
		b.form.codec == centrifuge.Protobuf)
	if err != nil {
		return b.failed(c, err)
	}
	b.done(c, centrifuge.Publish)
	return nil
}

// kindOf returns the kind of data that a client publishes. In Protobuf they are any bytes.
func (f form) kindOf(data []byte) bus.Kind {
	if f.codec == centrifuge.Protobuf {
		return hub.KindOf(data)
	}
	return bus.JSON
}

// subRefresh replaces the token of a subscription.
func (b *batch) subRefresh(c *centrifuge.Command) error {
	ask := c.SubRefresh
	if ask.Channel == "" {
		return errors.Join(answer.DisconnectBadRequest, errNoChannel)
	}
	if ask.Type != 0 { // of a map or a poll
		b.fail(c, answer.ErrBadRequest)
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
		return errors.Join(answer.DisconnectBadRequest, errNoChannel)
	}
	h, err := b.s.History(ask.Channel, bus.Query{Since: (*bus.Position)(ask.Since), Limit: int(ask.Limit),
		Reverse: ask.Reverse})
	if err != nil {
		return b.failed(c, err)
	}
	b.reply(&centrifuge.Reply{ID: c.ID, History: b.form.historyResult(h)})
	return nil
}

// historyResult returns a history in the client's codec, which may be Protobuf, for a reply. The
// HTTP API has results of its own, which are JSON and end a request.
func (f form) historyResult(h bus.History) *centrifuge.HistoryResult {
	return &centrifuge.HistoryResult{Publications: f.listed(h.Publications), Position: centrifuge.Position(h.Top)}
}

func (b *batch) presence(c *centrifuge.Command) error {
	name := c.Presence.Channel
	if name == "" {
		return errors.Join(answer.DisconnectBadRequest, errNoChannel)
	}
	there, err := b.s.Presence(name, false)
	if err != nil {
		return b.failed(c, err)
	}
	b.reply(&centrifuge.Reply{ID: c.ID, Presence: shownPresence(there.Clients)})
	return nil
}

func shownPresence(list []bus.ClientInfo) *centrifuge.PresenceResult {
	shown := make([]centrifuge.ClientInfo, len(list))
	for i, info := range list {
		shown[i] = centrifuge.ClientInfo(info)
	}
	return &centrifuge.PresenceResult{Clients: shown}
}

func (b *batch) presenceStats(c *centrifuge.Command) error {
	name := c.PresenceStats.Channel
	if name == "" {
		return errors.Join(answer.DisconnectBadRequest, errNoChannel)
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
