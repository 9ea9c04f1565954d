package push

import (
	"slices"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/resp"
	"github.com/myriad-go/myriad/resp/wire"
)

// commands are what the Redis door knows, besides the commands about the connection and about
// transactions. wrap returns what runs in the place of a command's handler.
func (d *redisServer) commands(wrap func(name string, f resp.HandlerFunc) resp.HandlerFunc) *resp.Mux {
	m := resp.NewMux()
	handle := func(name string, arity int, f resp.HandlerFunc, help string) {
		m.Handle(name, arity, wrap(name, f), help)
	}
	handle("PUBLISH", 3, d.publish, "Post a message to a channel.")
	handle("SPUBLISH", 3, d.publish, "Post a message to a channel.")
	handle("SUBSCRIBE", -2, func(w *resp.Reply, c *resp.Command) { d.subscribe(w, c, false) },
		"Listen for messages published to channels.")
	handle("SSUBSCRIBE", -2, func(w *resp.Reply, c *resp.Command) { d.subscribe(w, c, true) },
		"Listen for messages published to channels.")
	handle("UNSUBSCRIBE", -1, func(w *resp.Reply, c *resp.Command) { d.unsubscribe(w, c, false) },
		"Stop listening to channels.")
	handle("SUNSUBSCRIBE", -1, func(w *resp.Reply, c *resp.Command) { d.unsubscribe(w, c, true) },
		"Stop listening to channels.")
	handle("PSUBSCRIBE", -2, d.subscribePatterns, "Listen for messages published to channels that match patterns.")
	handle("PUNSUBSCRIBE", -1, d.unsubscribePatterns, "Stop listening to patterns.")
	for _, word := range []string{"CHANNELS", "SHARDCHANNELS"} {
		handle("PUBSUB "+word, -2, d.listChannels, "Return the channels that have subscribers on this node.")
	}
	for _, word := range []string{"NUMSUB", "SHARDNUMSUB"} {
		handle("PUBSUB "+word, -2, d.countSubscribers, "Return the number of subscribers on this node.")
	}
	handle("PUBSUB NUMPAT", 2, func(w *resp.Reply, _ *resp.Command) { w.Int(int64(d.node.patterns.count())) },
		"Return the number of patterns on this node.")
	handle("INFO", -1, func(w *resp.Reply, _ *resp.Command) {
		w.Verbatim("txt", "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nserver_name:"+d.node.version+
			"\r\n\r\n# Persistence\r\nloading:0\r\n\r\n# Replication\r\nrole:master\r\n")
	}, "Get information about the server.")
	handle("SELECT", 2, func(w *resp.Reply, c *resp.Command) {
		if string(c.Args[1]) != "0" {
			w.Error("ERR DB index is out of range")
			return
		}
		w.OK()
	}, "Choose the database, of which there is one.")
	handle("ECHO", 2, func(w *resp.Reply, c *resp.Command) { w.Bulk(c.Args[1]) }, "Return the message.")
	return m
}

// words are what the door says of subscriptions: [sharded].
var (
	subscribedWords   = [2]string{"subscribe", "ssubscribe"}
	unsubscribedWords = [2]string{"unsubscribe", "sunsubscribe"}
)

func index(sharded bool) int {
	if sharded {
		return 1
	}
	return 0
}

// count is what confirmations say is left: channels and patterns, or sharded channels. The caller
// holds k.mu.
func (k *redisClient) count(sharded bool) int64 {
	if sharded {
		return int64(len(k.channels[1]))
	}
	return int64(len(k.channels[0]) + len(k.patterns))
}

// noteSubscribed tells the connection whether the client has subscriptions. The caller holds k.mu.
func (k *redisClient) noteSubscribed(c *resp.Conn) {
	c.SetSubscribed(len(k.channels[0])+len(k.channels[1])+len(k.patterns) > 0)
}

func confirmation(p resp.Protocol, word string, name []byte, count int64) []byte {
	dst := wire.AppendBulk(wire.AppendPush(nil, 3, p), word)
	if name == nil {
		dst = wire.AppendNull(dst, p)
	} else {
		dst = wire.AppendBulk(dst, name)
	}
	return wire.AppendInt(dst, count)
}

// subscribe answers one push message for each channel, in front of the channel's first publication.
// If the client may not have one of the channels, it gets none.
func (d *redisServer) subscribe(w *resp.Reply, c *resp.Command, sharded bool) {
	k, s := d.client(c.Conn), d.session(c.Conn, sharded)
	i := index(sharded)
	names := make([]string, 0, len(c.Args)-1)
	for _, name := range c.Args[1:] {
		names = append(names, string(name))
	}
	wanted, err := s.admitAll(names)
	if err != nil {
		if slices.ContainsFunc(names, func(name string) bool { return !d.node.validChannel(name) }) {
			w.Error(badRedisChannel)
			return
		}
		d.fail(w, "redis subscribe", err)
		return
	}
	w.Flush()
	for at, name := range names {
		if r, isNew := wanted[name]; isNew {
			delete(wanted, name) // a name may come twice
			err = s.join(r, func(welcome) { k.add(c.Conn, i, c.Args[1+at]) })
		} else {
			k.add(c.Conn, i, c.Args[1+at])
		}
		if err != nil { // the bus could not; what the client has is not known to it
			for _, r := range wanted {
				r.cancel()
			}
			d.fail(w, "redis subscribe", err)
			c.Conn.Close()
			return
		}
	}
}

// add notes a channel and queues the confirmation.
func (k *redisClient) add(c *resp.Conn, i int, name []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.channels[i][string(name)] = struct{}{}
	k.noteSubscribed(c)
	// an error ends the connection
	_ = c.TryPush(buf.From(confirmation(c.Protocol(), subscribedWords[i], name, k.count(i == 1))))
}

func (d *redisServer) unsubscribe(w *resp.Reply, c *resp.Command, sharded bool) {
	k := d.client(c.Conn)
	i := index(sharded)
	k.mu.Lock()
	s := k.sessions[i]
	names := c.Args[1:]
	if len(names) == 0 {
		for name := range k.channels[i] {
			names = append(names, []byte(name))
		}
	}
	k.mu.Unlock()
	if len(names) == 0 {
		names = [][]byte{nil}
	}
	for _, name := range names {
		if s != nil && name != nil {
			s.unsubscribe(string(name))
		}
		k.mu.Lock()
		delete(k.channels[i], string(name))
		k.noteSubscribed(c.Conn)
		count := k.count(sharded)
		k.mu.Unlock()
		d.confirm(w, unsubscribedWords[i], name, count)
	}
}

// confirm writes a push message among the replies.
func (d *redisServer) confirm(w *resp.Reply, word string, name []byte, count int64) {
	w.Push(3)
	w.Text(word)
	if name == nil {
		w.Null()
	} else {
		w.Bulk(name)
	}
	w.Int(count)
}

// mayList reports whether the client may see the names of channels, and answers if not.
func (d *redisServer) mayList(w *resp.Reply, c *resp.Command) bool {
	if d.isOperator(c.Conn) {
		return true
	}
	d.fail(w, "redis pubsub", failPermissionDenied)
	return false
}

// mostListed bounds the channels of one answer to PUBSUB CHANNELS; those with the most subscribers
// come first.
const mostListed = 10_000

func (d *redisServer) listChannels(w *resp.Reply, c *resp.Command) {
	if !d.mayList(w, c) {
		return
	}
	if len(c.Args) > 2 && len(c.Args[2]) > d.node.limits.ChannelName { // each channel is compared with it
		w.Error("ERR the pattern is longer than the name of a channel may be")
		return
	}
	all := d.node.hub.matching(func(name string) bool {
		return len(c.Args) < 3 || wire.Match(c.Args[2], name)
	}, mostListed)
	w.Array(len(all.Channels))
	for _, ch := range all.Channels {
		w.Text(ch.Name)
	}
}

func (d *redisServer) countSubscribers(w *resp.Reply, c *resp.Command) {
	if !d.mayList(w, c) {
		return
	}
	w.Array(2 * (len(c.Args) - 2))
	for _, name := range c.Args[2:] {
		w.Bulk(name)
		w.Int(int64(d.node.hub.subscribers(string(name))))
	}
}
