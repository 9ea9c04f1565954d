package push

import (
	"fmt"
	"slices"

	"github.com/myriad-go/myriad/resp"
)

// This file serves the transactions of Redis: the commands between MULTI and EXEC are checked when
// they come, and run together at EXEC. Others may publish between them.

// A redisTransaction is what a client has sent since MULTI.
type redisTransaction struct {
	queued [][][]byte // the arguments of each command
	bytes  int        // what they take
	broken bool       // one was refused: EXEC runs none
}

// transactionSlack is what a queued command, and each of its arguments, takes besides its bytes.
const transactionSlack = 64

// A redisHandler runs commands, or keeps them for EXEC. Both muxes have the same commands: those of
// check are queued instead of run, after the mux has checked their form.
type redisHandler struct {
	*redisServer
	run, check *resp.Mux
}

func (d *redisServer) handler() *redisHandler {
	h := &redisHandler{redisServer: d}
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
func (h *redisHandler) transaction(c *resp.Conn) *redisTransaction {
	if k := clientOf(c); k != nil && !k.hasEnded() {
		return k.transaction
	}
	return nil
}

// ServeRESP runs one command. A command of a transaction that is answered with an error breaks it,
// so that EXEC does not run the others.
func (h *redisHandler) ServeRESP(w *resp.Reply, c *resp.Command) {
	if k := clientOf(c.Conn); k != nil && k.isExpired(h.Clock().Now()) {
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
func (h *redisHandler) set(c *resp.Conn, t *redisTransaction) {
	h.client(c).transaction = t
	c.SetTransaction(t != nil)
}

func (h *redisHandler) begin(w *resp.Reply, c *resp.Command) {
	k := h.client(c.Conn)
	if k.transaction != nil {
		w.Error("ERR MULTI calls can not be nested")
		return
	}
	h.set(c.Conn, new(redisTransaction))
	w.OK()
}

func (h *redisHandler) discard(w *resp.Reply, c *resp.Command) {
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
func (h *redisHandler) enqueue(w *resp.Reply, c *resp.Command, name string) {
	t := h.transaction(c.Conn)
	size := transactionSlack * (1 + len(c.Args))
	for _, a := range c.Args {
		size += len(a)
	}
	switch limit := h.Limits().Batch; {
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

func (h *redisHandler) exec(w *resp.Reply, c *resp.Command) {
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
func (h *redisHandler) mayPublish(w *resp.Reply, c *resp.Command) bool {
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
