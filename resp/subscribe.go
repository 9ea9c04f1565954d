package resp

import (
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
	// first and last are the ends of a list of all subscriptions, in the order of their beginning.
	first, last *Subscription
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

// The indexes of subscriptions.names, and the commands.
const (
	byChannel = iota
	byPattern
)

var (
	subscribeWords   = [2]string{"SUBSCRIBE", "PSUBSCRIBE"}
	unsubscribeWords = [2]string{"UNSUBSCRIBE", "PUNSUBSCRIBE"}
)

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
	open       bool          // it is in subscriptions' list
	prev, next *Subscription // in that
	waiter     driver.Parker // of Subscribe; nil: it has returned
	err        error         // what Subscribe is to return
	lost       error         // why a connection has broken since OnLost was called; nil: none has
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
	p := one.waiter
	if err := one.begin(); err != nil {
		return nil, err
	}
	for {
		done, err := one.settled()
		if !done && err == nil && ctx.Err() != nil {
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

// begin adds a subscription, and asks for it if there is a connection.
func (one *Subscription) begin() error {
	s, l := one.subs, one.subs.link
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClientClosed
	}
	s.add(one)
	var err error
	c := l.conn
	if c != nil && c.ready {
		err = s.ask(c, one.asks())
	} else {
		l.connect()
	}
	l.mu.Unlock()
	if err != nil {
		c.drop(err) // what is wanted is asked for again on the next connection
	}
	return nil
}

func (one *Subscription) asks() asked {
	return asked{subscribeWords[one.kind], one, one.names, len(one.names)}
}

// settled reports whether Subscribe is over.
func (one *Subscription) settled() (done bool, err error) {
	l := one.subs.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.err == nil && !one.confirmed.Load() {
		return false, nil
	}
	one.waiter = nil
	return true, one.err
}

// Names are the channels or the patterns, sorted.
func (one *Subscription) Names() []string { return slices.Clone(one.names) }

// Close ends the subscription. receive may still run when it returns, but is not called again. Any
// goroutine.
func (one *Subscription) Close() {
	s, l := one.subs, one.subs.link
	l.mu.Lock()
	var last []string
	if one.open {
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

func (s *subscriptions) add(one *Subscription) {
	one.open, one.prev = true, s.last
	if s.last != nil {
		s.last.next = one
	} else {
		s.first = one
	}
	s.last = one
	for _, name := range one.names {
		s.names[one.kind][name] = append(s.names[one.kind][name], one)
	}
}

// remove returns the names that no other subscription has.
func (s *subscriptions) remove(one *Subscription) (last []string) {
	if one.prev != nil {
		one.prev.next = one.next
	} else {
		s.first = one.next
	}
	if one.next != nil {
		one.next.prev = one.prev
	} else {
		s.last = one.prev
	}
	one.open, one.prev, one.next = false, nil, nil
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
	for one := s.first; one != nil; one = one.next {
		asks = append(asks, one.asks())
	}
	return s.ask(c, asks...)
}

// lost notes that the connection has ended. If it was ready, lost is the error for OnLost. Else the
// calls of Subscribe that wait end with why.
func (s *subscriptions) lost(lost, why error, ready bool) {
	s.asked = nil
	for one := s.first; one != nil; one = one.next {
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
	for one := s.first; one != nil; {
		next := one.next
		one.open, one.prev, one.next = false, nil, nil
		one.confirmed.Store(false)
		one.fail(ErrClientClosed)
		one = next
	}
	s.first, s.last, s.names, s.asked = nil, nil, [2]map[string][]*Subscription{}, nil
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
		return true, s.confirm(c, string(e[0].Str))
	default:
		return false, nil
	}
	return true, nil
}

// errForgotten is for a subscription that the server ends by itself.
var errForgotten = &ProtocolError{Reason: "the end of a subscription that was not asked for"}

// confirm takes the answer to a name of the first command that waits for one.
func (s *subscriptions) confirm(c *clientConn, word string) error {
	l := s.link
	l.mu.Lock()
	if l.conn != c {
		l.mu.Unlock()
		return nil
	}
	if len(s.asked) == 0 || !strings.EqualFold(s.asked[0].word, word) {
		l.mu.Unlock()
		return errForgotten
	}
	c.proven = true
	var lost error
	one := s.asked[0].one
	if s.asked[0].left--; s.asked[0].left == 0 {
		s.answered()
		if one != nil && one.open {
			one.confirmed.Store(true)
			if lost, one.lost = one.lost, nil; one.waiter != nil {
				one.waiter.Unpark()
			}
		}
	}
	l.mu.Unlock()
	if lost != nil {
		l.c.tellLost(one, lost)
	}
	return nil
}

// reply takes a reply that is no message: it answers PING, or is an error.
func (s *subscriptions) reply(c *clientConn, v Value) error {
	l := s.link
	l.mu.Lock()
	if l.conn != c {
		l.mu.Unlock()
		return nil
	}
	if len(s.asked) == 0 || s.asked[0].word != "PING" && v.Err() == nil {
		l.mu.Unlock()
		return errUnasked
	}
	c.proven = true
	one := s.asked[0].one
	s.answered()
	var again bool
	if one != nil && one.open {
		if again = one.waiter == nil; again {
			one.lost = nil
		}
		one.fail(v.Err())
	}
	l.mu.Unlock()
	if again {
		l.c.tellLost(one, v.Err())
	}
	return nil
}

// answered forgets the first command that waits for an answer.
func (s *subscriptions) answered() {
	s.asked[0] = asked{}
	s.asked = s.asked[1:]
}

// tellLost calls OnLost.
func (c *Client) tellLost(one *Subscription, err error) {
	if f := c.OnLost; f != nil {
		c.callBack(func() { f(one, err) })
		return
	}
	if _, refused := err.(Error); refused {
		c.logger().Warn("resp: the server refuses a subscription after a new connection", "error", err,
			"command", subscribeWords[one.kind], "names", one.names)
	}
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
