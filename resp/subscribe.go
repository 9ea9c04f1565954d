package resp

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/myriad-go/myriad/internal/driver"
)

// subscriptions are those of a client, which share one connection.
type subscriptions struct {
	link *link
	mu   sync.Mutex // taken behind link.mu
	// names are the channels and the patterns, by what SUBSCRIBE or PSUBSCRIBE is sent.
	names [2]map[string]*subscribed
	// asked are the commands without a complete answer on this connection, in order.
	asked []asked
}

// asked is a subscribing that was sent.
type asked struct {
	one  *Subscription
	left int // how many confirmations are to come
}

// The indexes of subscriptions.names.
const (
	byChannel = iota
	byPattern
)

var subscribeWords = [2]string{"SUBSCRIBE", "PSUBSCRIBE"}

// A subscribed name is a channel or a pattern.
type subscribed struct {
	all       []*Subscription
	confirmed bool // on the connection that there is
}

// A Subscription has a function called with the messages of channels.
type Subscription struct {
	subs    *subscriptions
	kind    int
	names   []string
	receive func(channel string, message []byte)
	waiter  driver.Parker // of Subscribe, while it waits
	err     error         // of that
}

// Subscribe has receive called with each message of these channels. It returns when the server has
// confirmed all of them, or with an error. receive runs on a loop and must not block; message is
// valid until it returns. All subscriptions of a Client share a connection of their own. When that
// breaks, the client subscribes again; what is published meanwhile is lost. Any goroutine but a
// loop's.
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
	if err := c.start(); err != nil {
		return nil, err
	}
	s := &Subscription{subs: &c.subs, kind: kind, names: slices.Compact(slices.Sorted(slices.Values(names))),
		receive: receive, waiter: c.system.NewParker()}
	unpark := s.waiter.Unpark
	defer context.AfterFunc(ctx, unpark)()
	c.subs.add(s)
	c.channel.raw(subscribing{s, subscribeWords[kind], s.names})
	for {
		done, err := c.subs.state(s)
		if err == nil && !done && ctx.Err() != nil {
			err = fmt.Errorf("resp: %s has not been confirmed: %w", subscribeWords[kind], context.Cause(ctx))
		}
		if err != nil {
			s.Close()
			return nil, err
		}
		if done {
			return s, nil
		}
		s.waiter.Park()
	}
}

// A subscribing is a SUBSCRIBE, or one of its kin, which push messages answer.
type subscribing struct {
	one   *Subscription // that it is for; nil: it is an UNSUBSCRIBE
	word  string
	names []string
}

// raw sends such commands, if there is a connection, or has one made. They are queued above the
// limit, because what is subscribed bounds them.
func (l *link) raw(all ...subscribing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ready {
		l.connect()
		return
	}
	var p []byte
	for _, a := range all {
		p = AppendCommand(p, append([]string{a.word}, a.names...)...)
	}
	l.nc.SetWriteLimit(l.nc.Queued() + 2*len(p) + clientWriteLimit)
	defer l.nc.SetWriteLimit(clientWriteLimit)
	for ; len(p) > 0; p = p[min(len(p), requestPiece):] {
		if _, err := l.nc.Write(p[:min(len(p), requestPiece)]); err != nil {
			l.nc.Abort(err) // what is wanted is asked for again on the next connection
			return
		}
	}
	l.subs.ask(all)
}

func (s *subscriptions) ask(all []subscribing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range all {
		s.asked = append(s.asked, asked{a.one, len(a.names)})
	}
}

// answered counts a confirmation of the first command that waits for some. The caller holds mu.
func (s *subscriptions) answered() {
	if len(s.asked) == 0 {
		return
	}
	if s.asked[0].left--; s.asked[0].left <= 0 {
		s.asked = s.asked[1:]
	}
}

// refused takes an error of the server: it is the answer to the first command that waits for one.
func (s *subscriptions) refused(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) == 0 {
		return
	}
	one := s.asked[0].one
	s.asked = s.asked[1:]
	switch {
	case one == nil:
	case one.waiter != nil:
		one.fail(err)
	default:
		s.link.c.logger().Warn("resp: the server refuses a subscription after a new connection", "error", err,
			"command", subscribeWords[one.kind], "names", one.names)
	}
}

// fail ends Subscribe's wait. The caller holds mu.
func (one *Subscription) fail(err error) {
	if one.waiter != nil && one.err == nil {
		one.err = err
		one.waiter.Unpark()
	}
}

func (s *subscriptions) add(one *Subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names[one.kind] == nil {
		s.names[one.kind] = map[string]*subscribed{}
	}
	for _, name := range one.names {
		n := s.names[one.kind][name]
		if n == nil {
			n = new(subscribed)
			s.names[one.kind][name] = n
		}
		n.all = append(slices.Clip(n.all), one)
	}
}

// state reports whether all of a subscription is confirmed, or why it has failed.
func (s *subscriptions) state(one *Subscription) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.err != nil {
		return false, one.err
	}
	for _, name := range one.names {
		if n := s.names[one.kind][name]; n == nil || !n.confirmed {
			return false, nil
		}
	}
	one.waiter = nil
	return true, nil
}

// Close ends the subscription. receive may still run when it returns, but is not called again. Any
// goroutine.
func (one *Subscription) Close() {
	s := one.subs
	s.mu.Lock()
	var last []string
	for _, name := range one.names {
		n := s.names[one.kind][name]
		if n == nil {
			continue
		}
		n.all = slices.DeleteFunc(slices.Clone(n.all), func(o *Subscription) bool { return o == one })
		if len(n.all) == 0 {
			delete(s.names[one.kind], name)
			last = append(last, name)
		}
	}
	one.names = nil
	s.mu.Unlock()
	if len(last) > 0 && s.link != nil {
		s.link.unsubscribe([2]string{"UNSUBSCRIBE", "PUNSUBSCRIBE"}[one.kind], last)
	}
}

// unsubscribe tells the server, if there is a connection.
func (l *link) unsubscribe(word string, names []string) {
	l.mu.Lock()
	ready := l.ready
	l.mu.Unlock()
	if ready {
		l.raw(subscribing{nil, word, names})
	}
}

// wanted reports whether there are subscriptions.
func (s *subscriptions) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.names[byChannel])+len(s.names[byPattern]) > 0
}

// lost notes that the connection has ended.
func (s *subscriptions) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = nil
	for _, names := range s.names {
		for _, n := range names {
			n.confirmed = false
		}
	}
}

// resume asks for everything on a new connection: for one subscription after the other, so that an
// error concerns only one.
func (s *subscriptions) resume(l *link) {
	var all []subscribing
	s.mu.Lock()
	for kind, names := range s.names {
		seen := map[*Subscription]bool{}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			for _, one := range names[name].all {
				if !seen[one] {
					seen[one] = true
					all = append(all, subscribing{one, subscribeWords[kind], one.names})
				}
			}
		}
	}
	s.mu.Unlock()
	l.raw(all...)
}

// failed ends the calls of Subscribe that wait.
func (s *subscriptions) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, names := range s.names {
		for _, n := range names {
			for _, one := range n.all {
				one.fail(err)
			}
		}
	}
}

// end is for the end of the client.
func (s *subscriptions) end(err error) {
	s.failed(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = [2]map[string]*subscribed{}
}

// message takes a message about subscriptions, and reports whether v is one. On the loop.
func (s *subscriptions) message(v Value) bool {
	if v.Kind != Push && v.Kind != Array || len(v.Elems) < 3 {
		return false
	}
	switch e := v.Elems; string(e[0].Str) {
	case "message":
		s.deliver(byChannel, e[1].Str, e[1].Str, e[2].Str)
	case "pmessage":
		if len(e) < 4 {
			return false
		}
		s.deliver(byPattern, e[1].Str, e[2].Str, e[3].Str)
	case "subscribe":
		s.confirm(byChannel, e[1].Str)
	case "psubscribe":
		s.confirm(byPattern, e[1].Str)
	case "unsubscribe", "punsubscribe":
		s.mu.Lock()
		s.answered()
		s.mu.Unlock()
	default:
		return false
	}
	return true
}

func (s *subscriptions) confirm(kind int, name []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered()
	n := s.names[kind][string(name)]
	if n == nil {
		return
	}
	n.confirmed = true
	for _, one := range n.all {
		if one.waiter != nil {
			one.waiter.Unpark()
		}
	}
}

func (s *subscriptions) deliver(kind int, name, channel, message []byte) {
	s.mu.Lock()
	n := s.names[kind][string(name)]
	var all []*Subscription
	if n != nil {
		all = n.all // it is replaced, not changed, when one ends
	}
	s.mu.Unlock()
	if len(all) == 0 {
		return
	}
	text := string(channel)
	for _, one := range all {
		s.link.c.callBack(func() { one.receive(text, message) })
	}
}
