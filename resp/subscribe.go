package resp

import (
	"container/list"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/resp/wire"
)

// subscriptions are those of a client, which share one connection. All of it is guarded by the
// link's mu. Commands are written under the same lock as the change that they follow from. So the
// server gets SUBSCRIBE and UNSUBSCRIBE in the order of the changes.
type subscriptions struct {
	link *link
	all  list.List // of *Subscription, in the order of their beginning
	// names are the subscriptions to a channel or a pattern. A slice is extended in place, and
	// replaced when one of it ends.
	names [2]map[string][]*Subscription
	// asked are the commands on the link's connection that have no complete answer, in order.
	asked []asked
}

// asked is a command that was sent on a connection for subscriptions.
type asked struct {
	word  string
	one   *Subscription // nil: it is for none
	names []string
	left  int // how many confirmations are to come
}

// A Subscription has a function called with the messages of channels.
type Subscription struct {
	subs    *subscriptions
	kind    int
	names   []string
	receive func(channel string, message []byte)

	// confirmed says that the server has confirmed all names on the connection that there is:
	// messages are delivered. It is changed under mu.
	confirmed atomic.Bool
	// Guarded by mu:
	place  *list.Element // in subscriptions.all; nil: it has ended
	waiter driver.Parker // of Subscribe; nil: it has returned
	err    error         // what Subscribe is to return
	lost   error         // why a connection has broken since OnLost was called; nil: none has
}

// Subscribe has receive called with each message of these channels. It returns when the server has
// confirmed all of them, or with an error. ctx bounds that wait alone. From then on no message is
// missed, as long as the connection lasts. When it breaks, the client subscribes again by itself.
// What is published meanwhile is lost, and OnLost is called. receive runs on a loop and must not
// block. message is valid until it returns. All subscriptions of a Client share a connection of
// their own. Any goroutine but a loop's.
func (c *Client) Subscribe(ctx context.Context, receive func(channel string, message []byte),
	channels ...string) (*Subscription, error) {
	return c.subscribe(ctx, receive, byChannel, channels)
}

// PSubscribe is Subscribe for all channels whose names match a pattern.
func (c *Client) PSubscribe(ctx context.Context, receive func(channel string, message []byte),
	patterns ...string) (*Subscription, error) {
	return c.subscribe(ctx, receive, byPattern, patterns)
}

func (c *Client) subscribe(ctx context.Context, receive func(string, []byte), kind int,
	names []string) (*Subscription, error) {
	if len(names) == 0 || receive == nil {
		return nil, fmt.Errorf("resp: %s needs a name, and a function for the messages", subscribeWords[kind])
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("resp: %s was not sent: %w", subscribeWords[kind], err)
	}
	if err := c.start(); err != nil {
		return nil, err
	}
	one := &Subscription{subs: c.channel.subs, kind: kind, names: slices.Compact(slices.Sorted(slices.Values(names))),
		receive: receive, waiter: c.system.NewParker()}
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, one.waiter.Unpark)()
	}
	s, l, p := one.subs, one.subs.link, one.waiter
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, ErrClientClosed
	}
	one.place = s.all.PushBack(one)
	for _, name := range one.names {
		s.names[kind][name] = append(s.names[kind][name], one)
	}
	conn := l.conn
	var broken error
	if conn != nil && conn.ready {
		broken = s.ask(conn, one.asks())
	} else {
		l.connect()
	}
	l.mu.Unlock()
	if broken != nil {
		conn.drop(broken) // what is wanted is asked for again on the next connection
	}
	for {
		l.mu.Lock()
		err := one.err
		done := err != nil || one.confirmed.Load()
		if done {
			one.waiter = nil
		}
		l.mu.Unlock()
		if !done && ctx.Err() != nil {
			err = fmt.Errorf("resp: %s has not been confirmed: %w", subscribeWords[kind], context.Cause(ctx))
		}
		if err != nil {
			one.Close()
			return nil, err
		}
		if done {
			return one, nil
		}
		p.Park()
	}
}

func (one *Subscription) asks() asked {
	return asked{subscribeWords[one.kind], one, one.names, len(one.names)}
}

// Names are the channels or the patterns, sorted.
func (one *Subscription) Names() []string { return slices.Clone(one.names) }

// Close ends the subscription. receive may still run when it returns, but is not called again. Any
// goroutine.
func (one *Subscription) Close() {
	s, l := one.subs, one.subs.link
	l.mu.Lock()
	var last []string
	if one.place != nil {
		last = s.remove(one)
	}
	c := l.conn
	var err error
	if len(last) > 0 && c != nil && c.ready {
		err = s.ask(c, asked{unsubscribeWords[one.kind], nil, last, len(last)})
	}
	l.mu.Unlock()
	if err != nil {
		c.drop(err)
	}
}

// remove returns the names that no other subscription has.
func (s *subscriptions) remove(one *Subscription) (last []string) {
	s.all.Remove(one.place)
	one.place = nil
	one.confirmed.Store(false)
	for _, name := range one.names {
		others := slices.DeleteFunc(slices.Clone(s.names[one.kind][name]),
			func(o *Subscription) bool { return o == one })
		if s.names[one.kind][name] = others; len(others) == 0 {
			delete(s.names[one.kind], name)
			last = append(last, name)
		}
	}
	return last
}

// ask sends commands. They are queued above the limit, because what is subscribed bounds them. The
// caller drops the connection after an error.
func (s *subscriptions) ask(c *clientConn, all ...asked) error {
	var p []byte
	for _, a := range all {
		p = wire.AppendCommand(p, append([]string{a.word}, a.names...)...)
	}
	c.nc.SetWriteLimit(c.nc.Queued() + 2*len(p) + clientWriteLimit)
	defer c.nc.SetWriteLimit(clientWriteLimit)
	for ; len(p) > 0; p = p[min(len(p), requestPiece):] {
		if _, err := c.nc.Write(p[:min(len(p), requestPiece)]); err != nil {
			return err
		}
	}
	s.asked = append(s.asked, all...)
	return nil
}

// resume asks for everything on a new connection: for one subscription after the other, so that an
// error concerns only one.
func (s *subscriptions) resume(c *clientConn) error {
	var asks []asked
	for e := s.all.Front(); e != nil; e = e.Next() {
		asks = append(asks, e.Value.(*Subscription).asks())
	}
	return s.ask(c, asks...)
}

// lost notes that the connection has ended. If it was ready, lost is the error for OnLost. Else the
// calls of Subscribe that wait end with why.
func (s *subscriptions) lost(lost, why error, ready bool) {
	s.asked = nil
	for e := s.all.Front(); e != nil; e = e.Next() {
		one := e.Value.(*Subscription)
		if one.confirmed.Swap(false) && one.lost == nil {
			one.lost = lost
		}
		if !ready {
			one.fail(why)
		}
	}
}

// end is for the end of the client.
func (s *subscriptions) end() {
	for e := s.all.Front(); e != nil; e = e.Next() {
		one := e.Value.(*Subscription)
		one.place = nil
		one.confirmed.Store(false)
		one.fail(ErrClientClosed)
	}
	s.all.Init()
	s.names, s.asked = [2]map[string][]*Subscription{}, nil
}

// fail ends Subscribe's wait.
func (one *Subscription) fail(err error) {
	if one.waiter != nil && one.err == nil {
		one.err = err
		one.waiter.Unpark()
	}
}

// message takes a message about subscriptions, and reports whether v is one. On the loop.
func (s *subscriptions) message(c *clientConn, v Value) (taken bool, err error) {
	if v.Kind != wire.Push && v.Kind != wire.Array || len(v.Elems) < 3 {
		return false, nil
	}
	switch e := v.Elems; string(e[0].Str) {
	case "message":
		s.deliver(byChannel, e[1].Str, e[1].Str, e[2].Str)
	case "pmessage":
		if len(e) < 4 {
			return false, nil
		}
		s.deliver(byPattern, e[1].Str, e[2].Str, e[3].Str)
	case "subscribe", "psubscribe", "unsubscribe", "punsubscribe":
		return true, s.answer(c, string(e[0].Str), v)
	default:
		return false, nil
	}
	return true, nil
}

// errForgotten is for a subscription that the server ends by itself.
var errForgotten = &ProtocolError{Reason: "the end of a subscription that was not asked for"}

// answer takes the answer to the first command that waits for one. word is that of a confirmation.
// If it is empty, v is a reply that is no message: the answer to PING, or an error.
func (s *subscriptions) answer(c *clientConn, word string, v Value) error {
	l := s.link
	l.mu.Lock()
	var first asked
	if len(s.asked) > 0 {
		first = s.asked[0]
	}
	var unasked error
	switch {
	case l.conn != c:
		l.mu.Unlock()
		return nil
	case word == "" && (first.word == "" || first.word != "PING" && v.Err() == nil):
		unasked = errUnasked
	case word != "" && !strings.EqualFold(first.word, word):
		unasked = errForgotten
	}
	if unasked != nil {
		l.mu.Unlock()
		return unasked
	}
	c.proven = true
	one := first.one
	s.asked[0].left--
	done := word == "" || s.asked[0].left == 0
	if done {
		s.asked[0] = asked{}
		s.asked = s.asked[1:]
	}
	var lost error
	switch {
	case !done || one == nil || one.place == nil:
	case word != "":
		one.confirmed.Store(true)
		if lost, one.lost = one.lost, nil; one.waiter != nil {
			one.waiter.Unpark()
		}
	case one.waiter == nil: // it was confirmed on another connection
		lost, one.lost = v.Err(), nil
	default:
		one.fail(v.Err())
	}
	l.mu.Unlock()
	if lost == nil {
		return nil
	}
	if f := l.c.OnLost; f != nil {
		l.c.callBack(func() { f(one, lost) })
	} else if _, refused := lost.(Error); refused {
		l.c.logger().Warn("resp: the server refuses a subscription after a new connection", "error", lost,
			"command", subscribeWords[one.kind], "names", one.names)
	}
	return nil
}

func (s *subscriptions) deliver(kind int, name, channel, message []byte) {
	l := s.link
	l.mu.Lock()
	all := s.names[kind][string(name)]
	l.mu.Unlock()
	if len(all) == 0 {
		return
	}
	text := string(channel)
	for _, one := range all {
		if one.confirmed.Load() {
			l.c.callBack(func() { one.receive(text, message) })
		}
	}
}
