package resp

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/outbox"
	written "github.com/myriad-go/myriad/internal/parts"
	"github.com/myriad-go/myriad/resp/wire"
)

const (
	// maxSubscriptions bounds the channels and the patterns of one connection.
	maxSubscriptions = 10_000
	// maxPatterns bounds the patterns of all connections: each publication is compared with all.
	maxPatterns = 10_000
	// maxChannel and maxPattern bound a name and a pattern, in bytes, and allPatterns all patterns
	// together. wire.Match takes as many steps as the pattern is long for each byte of a channel's
	// name, in each publication.
	maxChannel  = 4096
	maxPattern  = 1024
	allPatterns = 512 << 10
)

// The indexes of what there is for channels and for patterns, and the commands.
const (
	byChannel = iota
	byPattern
)

var (
	subscribeWords   = [2]string{"SUBSCRIBE", "PSUBSCRIBE"}
	unsubscribeWords = [2]string{"UNSUBSCRIBE", "PUNSUBSCRIBE"}
)

// A PubSub has channels on which connections get what others publish. The zero value is ready. One
// connection may have 10,000 subscriptions of each kind, and all together 10,000 different
// patterns. The name of a channel has at most 4,096 bytes, a pattern 1,024, and all patterns
// together 512 KiB. Above that SUBSCRIBE and PSUBSCRIBE are answered with an error. What happens to
// a connection that reads too slowly is Server.Overflow's to say.
//
// Each subscriber gets the messages of one publisher in order. Those of publishers that publish at
// the same time may reach two subscribers in two orders, because no message waits for another.
type PubSub struct {
	mu    sync.RWMutex
	names [2]table // by channel, and by pattern
	bytes [2]int   // of the names
	conns map[*Conn]*subscriber
}

// A table is the subscriptions to channels, or to patterns, by name.
type table map[string]map[*Conn]*membership

// A membership is the subscription of a connection to a channel or a pattern.
type membership struct {
	// ended is guarded by Conn.mu, under which messages are queued: when UNSUBSCRIBE is confirmed,
	// no message comes any more. A client in RESP2 would take it for a reply.
	ended bool
}

// A subscriber is the channels and the patterns that a connection has subscribed to.
type subscriber [2]map[string]struct{}

func (s *subscriber) count() int64 { return int64(len(s[byChannel]) + len(s[byPattern])) }

// Register adds the commands SUBSCRIBE, UNSUBSCRIBE, PSUBSCRIBE, PUNSUBSCRIBE, PUBLISH and PUBSUB
// to a Mux.
func (p *PubSub) Register(m *Mux) {
	for kind, what := range [2]string{"messages published to channels.", "messages published to channels that " +
		"match patterns."} {
		m.Handle(subscribeWords[kind], -2, func(w *Reply, c *Command) { p.subscribe(w, c, kind) }, "Listen for "+what)
		m.Handle(unsubscribeWords[kind], -1, func(w *Reply, c *Command) { p.unsubscribe(w, c, kind) },
			"Stop listening for "+what)
	}
	m.Handle("PUBLISH", 3, func(w *Reply, c *Command) { w.Int(int64(p.Publish(string(c.Args[1]), c.Args[2]))) },
		"Post a message to a channel.")
	m.Handle("PUBSUB CHANNELS", -2, p.listChannels, "Return the active channels.")
	m.Handle("PUBSUB NUMSUB", -2, p.countSubscribers, "Return the number of subscribers of channels.")
	m.Handle("PUBSUB NUMPAT", 2, func(w *Reply, _ *Command) {
		p.mu.RLock()
		defer p.mu.RUnlock()
		w.Int(int64(len(p.names[byPattern])))
	}, "Return the number of patterns.")
}

// Publish sends a message to the subscribers of a channel and of the patterns that match it, and
// returns how many subscriptions that are: none if the name is too long. With OverflowBlock it
// waits for subscribers that have no room, behind the others, and for all of them together no
// longer than Server.PushTimeout.
func (p *PubSub) Publish(channel string, message []byte) int {
	var room [8]delivery // on the stack
	to := p.receivers(room[:0], channel)
	m := publication{channel: channel, message: message}
	m.deliver(to)
	return len(to)
}

// receivers appends the subscriptions that get a message of a channel.
func (p *PubSub) receivers(to []delivery, channel string) []delivery {
	if len(channel) > maxChannel {
		return to
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	for c, m := range p.names[byChannel][channel] {
		to = append(to, delivery{c, m, ""})
	}
	for pattern, conns := range p.names[byPattern] {
		if !wire.Match(pattern, channel) {
			continue
		}
		for c, m := range conns {
			to = append(to, delivery{c, m, pattern})
		}
	}
	return to
}

// A delivery is a connection that gets a message; pattern is what it has subscribed to, if not the
// channel.
type delivery struct {
	c       *Conn
	m       *membership
	pattern string
}

// A publication is encoded once for each protocol, and for each pattern in a row.
type publication struct {
	channel string
	message []byte
	blocks  [RESP3 + 1]*buf.Block
	pattern [RESP3 + 1]string
}

// deliver pushes the message: to those that have room, to those whose policy makes room, and at
// last to those that it waits for. It holds no lock. Who has closed, or is too slow, goes without.
func (m *publication) deliver(to []delivery) {
	defer m.release()
	slow := to[:0]
	for _, d := range to {
		if d.c.offer(pushed{m.encoded(d), d.m}, nil, true) == outbox.ErrBlocked {
			slow = append(slow, d)
		}
	}
	var blocked []blockedPush
	for _, d := range slow {
		if p := (pushed{m.encoded(d), d.m}); d.c.offerFlushed(p) == outbox.ErrBlocked {
			p.Retain()
			defer p.Release()
			blocked = append(blocked, blockedPush{d.c, p})
		}
	}
	if len(blocked) > 0 {
		_ = (&blockedPushes{all: blocked}).wait()
	}
}

func (m *publication) encoded(d delivery) *buf.Block {
	proto := d.c.Protocol()
	if b := m.blocks[proto]; b != nil {
		if m.pattern[proto] == d.pattern {
			return b
		}
		b.Release()
	}
	b := buf.Get(64 + len(d.pattern) + len(m.channel) + len(m.message) + 64)
	out := b.Extend()[:0]
	if d.pattern == "" {
		out = wire.AppendBulk(wire.AppendPush(out, 3, proto), "message")
	} else {
		out = wire.AppendBulk(wire.AppendBulk(wire.AppendPush(out, 4, proto), "pmessage"), d.pattern)
	}
	b.Commit(len(wire.AppendBulk(wire.AppendBulk(out, m.channel), m.message)))
	m.blocks[proto], m.pattern[proto] = b, d.pattern
	return b
}

func (m *publication) release() {
	for _, b := range m.blocks {
		if b != nil {
			b.Release()
		}
	}
}

// subscribe answers one push message for each channel, in front of the first publication of it.
func (p *PubSub) subscribe(w *Reply, c *Command, kind int) {
	w.Flush()
	conn, fresh := c.Conn, false // c is not valid for as long
	for _, a := range c.Args[1:] {
		known, ok := p.add(w, conn, kind, a)
		if fresh = fresh || !known; !ok {
			w.Error("ERR too many subscriptions, or a name that is too long")
			break
		}
	}
	if fresh { // without the lock, because a connection that has ended leaves at once
		conn.OnEnd(func() { p.leave(conn) })
	}
}

// add adds and confirms one subscription. ok says that there was room, known that the connection
// had subscriptions before. The caller of the first one for which it had none sees to their end.
func (p *PubSub) add(w *Reply, c *Conn, kind int, arg []byte) (known, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok = p.enter(c, kind, string(arg)); ok {
		c.SetSubscribed(true)
		w.confirm(subscribeWords[kind], arg, p.conns[c].count())
		w.Flush()
	}
	return known, ok
}

// enter is add without an answer. It is called under mu.
func (p *PubSub) enter(c *Conn, kind int, name string) (known, ok bool) {
	if p.conns == nil {
		p.conns, p.names = map[*Conn]*subscriber{}, [2]table{{}, {}}
	}
	s := p.conns[c]
	if known = s != nil; !known {
		s = &subscriber{{}, {}}
		p.conns[c] = s
	}
	table := p.names[kind]
	if _, has := s[kind][name]; !has {
		fresh, most := table[name] == nil, maxChannel
		if kind == byPattern {
			most = maxPattern
			if fresh && (len(table) >= maxPatterns || p.bytes[kind]+len(name) > allPatterns) {
				return known, false
			}
		}
		if len(name) > most || len(s[kind]) >= maxSubscriptions {
			return known, false
		}
		s[kind][name] = struct{}{}
		if fresh {
			table[name] = map[*Conn]*membership{}
			p.bytes[kind] += len(name)
		}
		table[name][c] = new(membership)
	}
	return known, true
}

// confirm writes the answer to a subscription or its end; a nil name is null.
func (w *Reply) confirm(word string, name []byte, count int64) {
	w.Push(3)
	w.Text(strings.ToLower(word))
	if name == nil {
		w.Null()
	} else {
		w.Bulk(name)
	}
	w.Int(count)
}

// leave ends all subscriptions of a connection.
func (p *PubSub) leave(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.conns[c]; s != nil {
		for kind, set := range s {
			for name := range set {
				p.end(kind, name, c)
			}
		}
		delete(p.conns, c)
	}
}

// end ends a subscription. It is called under mu.
func (p *PubSub) end(kind int, name string, c *Conn) {
	conns := p.names[kind][name]
	c.mu.Lock()
	conns[c].ended = true
	c.mu.Unlock()
	delete(conns, c)
	if len(conns) == 0 {
		delete(p.names[kind], name)
		p.bytes[kind] -= len(name)
	}
}

func (p *PubSub) unsubscribe(w *Reply, c *Command, kind int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, word := p.conns[c.Conn], unsubscribeWords[kind]
	if s == nil {
		s = new(subscriber)
	}
	names := c.Args[1:]
	if len(names) == 0 {
		for name := range s[kind] {
			names = append(names, []byte(name))
		}
	}
	if len(names) == 0 {
		w.confirm(word, nil, s.count())
	}
	for _, name := range names {
		if _, known := s[kind][string(name)]; known {
			delete(s[kind], string(name))
			p.end(kind, string(name), c.Conn)
		}
		w.confirm(word, name, s.count())
	}
	c.Conn.SetSubscribed(s.count() > 0)
}

func (p *PubSub) listChannels(w *Reply, c *Command) {
	if len(c.Args) > 2 && len(c.Args[2]) > maxPattern {
		w.Error("ERR the pattern is too long")
		return
	}
	p.mu.RLock()
	names := slices.Collect(maps.Keys(p.names[byChannel]))
	p.mu.RUnlock()
	if len(c.Args) > 2 { // without the lock, because a pattern may take long
		names = slices.DeleteFunc(names, func(name string) bool { return !wire.Match(c.Args[2], name) })
	}
	w.Array(len(names))
	for _, name := range names {
		w.Text(name)
	}
}

func (p *PubSub) countSubscribers(w *Reply, c *Command) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	w.Array(2 * (len(c.Args) - 2))
	for _, a := range c.Args[2:] {
		w.Bulk(a)
		w.Int(int64(len(p.names[byChannel][string(a)])))
	}
}

// subscriptionParts are the parts of what AppendState appends: names of channels, and patterns.
var subscriptionParts = [2]string{"channels", "patterns"}

// AppendState appends the subscriptions of a connection that moves to another process, for Restore
// there. It is for Server.FreezeValue.
func (p *PubSub) AppendState(c *Conn, dst []byte) []byte {
	p.mu.RLock()
	defer p.mu.RUnlock()
	e := written.Begin(dst, frozenVersion)
	s := p.conns[c]
	if s == nil {
		return e.End()
	}
	for kind, part := range subscriptionParts {
		var list []byte
		for _, name := range slices.Sorted(maps.Keys(s[kind])) {
			list = append(binary.AppendUvarint(list, uint64(len(name))), name...)
		}
		if len(list) > 0 {
			e.Bytes(part, list)
		}
	}
	return e.End()
}

// Restore subscribes a connection that has come from another process to what AppendState has
// written. Its peer is told nothing. It fails if there are more subscriptions than there may be.
// It is for Server.ThawValue, and keeps nothing of state.
func (p *PubSub) Restore(c *Conn, state []byte) error {
	d, err := written.Parse(state, frozenVersion)
	if err != nil {
		return err
	}
	var lists [2][]byte
	for kind, part := range subscriptionParts {
		lists[kind] = d.Bytes(part, written.MaxState)
	}
	if err := d.Err(); err != nil {
		return err
	}
	if len(lists[byChannel])+len(lists[byPattern]) == 0 {
		return nil
	}
	c.OnEnd(func() { p.leave(c) })
	c.SetSubscribed(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	for kind, list := range lists {
		for len(list) > 0 {
			size, used := binary.Uvarint(list)
			if used <= 0 || size > uint64(len(list)-used) {
				return fmt.Errorf("resp: %s: %w: a name is cut off", subscriptionParts[kind], written.ErrBroken)
			}
			name := string(list[used:][:size])
			list = list[used+int(size):]
			if _, ok := p.enter(c, kind, name); !ok {
				return fmt.Errorf("resp: %s: there are too many subscriptions, or a name is too long",
					subscriptionParts[kind])
			}
		}
	}
	return nil
}
