package redis

import (
	"fmt"
	"slices"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/resp"
	"github.com/myriad-go/myriad/resp/wire"
)

// commands are what the Redis door knows, besides the commands about the connection and about
// transactions. wrap returns what runs in the place of a command's handler.
func (d *Door) commands(wrap func(name string, f resp.HandlerFunc) resp.HandlerFunc) *resp.Mux {
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
	handle("PUBSUB NUMPAT", 2, func(w *resp.Reply, _ *resp.Command) { w.Int(int64(d.patterns.count())) },
		"Return the number of patterns on this node.")
	handle("INFO", -1, func(w *resp.Reply, _ *resp.Command) {
		w.Verbatim("txt", "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nserver_name:"+d.hub.Version()+
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
func (k *client) count(sharded bool) int64 {
	if sharded {
		return int64(len(k.channels[1]))
	}
	return int64(len(k.channels[0]) + len(k.patterns))
}

// noteSubscribed tells the connection whether the client has subscriptions. The caller holds k.mu.
func (k *client) noteSubscribed(c *resp.Conn) {
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
func (d *Door) subscribe(w *resp.Reply, c *resp.Command, sharded bool) {
	k, s := d.client(c.Conn), d.session(c.Conn, sharded)
	i := index(sharded)
	names := make([]string, 0, len(c.Args)-1)
	for _, name := range c.Args[1:] {
		names = append(names, string(name))
	}
	k.mu.Lock()
	g := k.grant
	k.mu.Unlock()
	wanted, err := s.AdmitAll(names, g)
	if err != nil {
		if slices.ContainsFunc(names, func(name string) bool { return !d.hub.IsChannelName(name) }) {
			w.Error(badChannel)
			return
		}
		d.failFor(w, s, "redis subscribe", err)
		return
	}
	w.Flush()
	for at, name := range names {
		if r, isNew := wanted[name]; isNew {
			delete(wanted, name) // a name may come twice
			err = s.Join(r, func(hub.Welcome) { k.add(c.Conn, i, c.Args[1+at]) })
		} else {
			k.add(c.Conn, i, c.Args[1+at])
		}
		if err != nil { // the bus could not; what the client has is not known to it
			for _, r := range wanted {
				r.Cancel()
			}
			d.fail(w, "redis subscribe", err)
			c.Conn.Close()
			return
		}
	}
}

// add notes a channel and queues the confirmation.
func (k *client) add(c *resp.Conn, i int, name []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.channels[i][string(name)] = struct{}{}
	k.noteSubscribed(c)
	// an error ends the connection
	_ = c.TryPush(buf.From(confirmation(c.Protocol(), subscribedWords[i], name, k.count(i == 1))))
}

func (d *Door) unsubscribe(w *resp.Reply, c *resp.Command, sharded bool) {
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
			s.Unsubscribe(string(name))
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
func (d *Door) confirm(w *resp.Reply, word string, name []byte, count int64) {
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
func (d *Door) mayList(w *resp.Reply, c *resp.Command) bool {
	if d.isOperator(c.Conn) {
		return true
	}
	d.fail(w, "redis pubsub", answer.ErrPermissionDenied)
	return false
}

// mostListed bounds the channels of one answer to PUBSUB CHANNELS; those with the most subscribers
// come first.
const mostListed = 10_000

func (d *Door) listChannels(w *resp.Reply, c *resp.Command) {
	if !d.mayList(w, c) {
		return
	}
	if len(c.Args) > 2 && len(c.Args[2]) > d.hub.Limits().ChannelName { // each channel is compared with it
		w.Error("ERR the pattern is longer than the name of a channel may be")
		return
	}
	all := d.hub.MatchingChannels(func(name string) bool {
		return len(c.Args) < 3 || wire.Match(c.Args[2], name)
	}, mostListed).Channels
	w.Array(len(all))
	for _, ch := range all {
		w.Text(ch.Name)
	}
}

func (d *Door) countSubscribers(w *resp.Reply, c *resp.Command) {
	if !d.mayList(w, c) {
		return
	}
	w.Array(2 * (len(c.Args) - 2))
	for _, name := range c.Args[2:] {
		w.Bulk(name)
		w.Int(int64(d.hub.SubscribersHere(string(name))))
	}
}

// This file serves the transactions of Redis: the commands between MULTI and EXEC are checked when
// they come, and run together at EXEC. Others may publish between them.

// A transaction is what a client has sent since MULTI.
type transaction struct {
	queued [][][]byte // the arguments of each command
	bytes  int        // what they take
	broken bool       // one was refused: EXEC runs none
}

// transactionSlack is what a queued command, and each of its arguments, takes besides its bytes.
const transactionSlack = 64

// A handler runs commands, or keeps them for EXEC. Both muxes have the same commands: those of
// check are queued instead of run, after the mux has checked their form.
type handler struct {
	*Door
	run, check *resp.Mux
}

func (d *Door) handler() *handler {
	h := &handler{Door: d}
	h.run = d.commands(func(_ string, f resp.HandlerFunc) resp.HandlerFunc { return f })
	h.check = d.commands(func(name string, _ resp.HandlerFunc) resp.HandlerFunc {
		return func(w *resp.Reply, c *resp.Command) { h.enqueue(w, c, name) }
	})
	for _, m := range []*resp.Mux{h.run, h.check} {
		m.Handle("MULTI", 1, h.begin, "Begin a transaction.")
		m.Handle("EXEC", 1, h.exec, "Run the commands of a transaction.")
		m.Handle("DISCARD", 1, h.discard, "Drop the commands of a transaction.")
	}
	return h
}

// transaction returns what the client has begun, or nil.
func (h *handler) transaction(c *resp.Conn) *transaction {
	if k := clientOf(c); k != nil && !k.hasEnded() {
		return k.transaction
	}
	return nil
}

// ServeRESP runs one command. A command of a transaction that is answered with an error breaks it,
// so that EXEC does not run the others.
func (h *handler) ServeRESP(w *resp.Reply, c *resp.Command) {
	if k := clientOf(c.Conn); k != nil && k.isExpired(h.hub.Clock().Now()) {
		k.transaction = nil
		c.Conn.SetTransaction(false)
		w.Error("NOAUTH the token has expired: authenticate again with a new one")
		return
	}
	t := h.transaction(c.Conn)
	if t == nil {
		h.run.ServeRESP(w, c)
		return
	}
	if c.Is(0, "EXEC") && len(c.Args) > 1 {
		h.set(c.Conn, nil)
		w.Error("EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command")
		return
	}
	before := len(t.queued)
	if own, good := w.CheckOwn(c); !own {
		h.check.ServeRESP(w, c)
	} else if good {
		h.enqueue(w, c, "")
	}
	ends := c.Is(0, "EXEC") || c.Is(0, "MULTI") || c.Is(0, "DISCARD")
	if len(t.queued) == before && !ends {
		t.broken = true
	}
}

// set begins a transaction, or ends it: nil.
func (h *handler) set(c *resp.Conn, t *transaction) {
	h.client(c).transaction = t
	c.SetTransaction(t != nil)
}

func (h *handler) begin(w *resp.Reply, c *resp.Command) {
	k := h.client(c.Conn)
	if k.transaction != nil {
		w.Error("ERR MULTI calls can not be nested")
		return
	}
	h.set(c.Conn, new(transaction))
	w.OK()
}

func (h *handler) discard(w *resp.Reply, c *resp.Command) {
	k := h.client(c.Conn)
	if k.transaction == nil {
		w.Error("ERR DISCARD without MULTI")
		return
	}
	h.set(c.Conn, nil)
	w.OK()
}

// enqueue keeps a command, or answers why it may not be in a transaction. name is that of a command
// of the mux.
func (h *handler) enqueue(w *resp.Reply, c *resp.Command, name string) {
	t, size := h.transaction(c.Conn), queuedSize(c.Args)
	switch limit := h.hub.Limits().Batch; {
	case isSubscribing(name), isSilencing(c):
		w.Error("ERR Command not allowed inside a transaction")
		return
	case t.bytes+size > limit:
		w.Error(fmt.Sprintf("ERR the transaction is larger than %d bytes", limit))
		return
	case (name == "PUBLISH" || name == "SPUBLISH") && !h.mayPublish(w, c):
		return
	}
	args := make([][]byte, len(c.Args))
	for i, a := range c.Args {
		args[i] = slices.Clone(a)
	}
	t.queued, t.bytes = append(t.queued, args), t.bytes+size
	w.Simple("QUEUED")
}

// queuedSize returns what a queued command takes, in bytes.
func queuedSize(args [][]byte) int {
	size := transactionSlack * (1 + len(args))
	for _, a := range args {
		size += len(a)
	}
	return size
}

// isSubscribing reports whether a command is answered by push messages, which an array of replies
// cannot hold.
func isSubscribing(name string) bool {
	return slices.Contains([]string{"SUBSCRIBE", "SSUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "SUNSUBSCRIBE",
		"PUNSUBSCRIBE"}, name)
}

// isSilencing reports whether a command has no reply, so that an array of replies would lack one.
// Redis sends such an array.
func isSilencing(c *resp.Command) bool {
	return c.Is(0, "CLIENT") && c.Is(1, "REPLY") && !c.Is(2, "ON")
}

func (h *handler) exec(w *resp.Reply, c *resp.Command) {
	k := h.client(c.Conn)
	t := k.transaction
	h.set(c.Conn, nil)
	switch {
	case t == nil:
		w.Error("ERR EXEC without MULTI")
	case t.broken:
		w.Error("EXECABORT Transaction discarded because of previous errors.")
	default:
		w.Array(len(t.queued))
		for _, args := range t.queued {
			one := &resp.Command{Args: args, Conn: c.Conn}
			if own, good := w.CheckOwn(one); !own {
				h.run.ServeRESP(w, one)
			} else if good {
				w.ServeOwn(one)
			}
		}
	}
}

// mayPublish reports whether the client may publish what c has, and answers if not, as far as that
// is known before it is published.
func (h *handler) mayPublish(w *resp.Reply, c *resp.Command) bool {
	channel := string(c.Args[1])
	if answer := h.badPublication(channel, c.Args[2]); answer != "" {
		w.Error(answer)
		return false
	}
	if h.isOperator(c.Conn) {
		return true
	}
	if err := h.session(c.Conn, false).MayPublishTo(channel); err != nil {
		h.fail(w, "redis publish", err)
		return false
	}
	return true
}
