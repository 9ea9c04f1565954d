package resp

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime/debug"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/resp/wire"
)

// This file is the way of a request. The loop receives bytes (handler.Received). It reads them
// where they are (Conn.serveView), or keeps them for a task (Conn.take). The task runs the commands
// in them (work.Do, work.commands, work.route) and queues the replies (Reply.Flush, Conn.queue).
// work.settle and Conn.goOn decide what follows.

// A front opens connections: it is the handler that a listener gives them.
type front struct{ live *live }

// Opened gives the connection its own handler.
func (f front) Opened(nc *myriad.Conn) {
	l := f.live
	c := &Conn{nc: nc, lane: l.lanes[nc.Loop().Index()], number: l.numbers.Add(1)}
	if l.rules.open {
		c.state.Store(stateAuthed)
	}
	nc.SetHandler((*handler)(c), nil)
}

// Received is never reached: the handler changes in Opened.
func (front) Received(nc *myriad.Conn, _ []byte) { nc.Abort(nil) }

// Closed is reached by a connection that ended before.
func (front) Closed(*myriad.Conn, error) {}

// handler is the Conn as the engine sees it, out of the way of its public methods. All of it runs
// on the loop.
type handler Conn

var (
	_ myriad.Drainer        = (*handler)(nil)
	_ myriad.Ender          = (*handler)(nil)
	_ myriad.TruncatedEnder = (*handler)(nil)
	_ myriad.Timed          = (*handler)(nil)
	_ myriad.Notified       = (*handler)(nil)
	_ myriad.Stopper        = (*handler)(nil)
)

// Opened implements myriad.Handler.
func (h *handler) Opened(nc *myriad.Conn) {
	c, s := (*Conn)(h), h.lane.live.s
	c.lane.live.conns.add()
	nc.SetWriteLimit(c.limit())
	if s.IdleTimeout > 0 {
		nc.SetTimer(s.IdleTimeout)
	}
	if s.OnOpen != nil {
		s.OnOpen(c)
	}
	if c.lane.drained {
		c.drain()
	}
}

// Received implements myriad.Handler.
func (h *handler) Received(nc *myriad.Conn, p []byte) {
	c, l := (*Conn)(h), h.lane.live
	if d := l.s.IdleTimeout; d > 0 {
		nc.SetTimer(d)
	}
	if c.is(stateClosing | stateDraining) {
		return
	}
	if l.s.Dispatch == DispatchInline {
		p = c.serveView(p)
	}
	if len(p) > 0 {
		c.take(p)
	}
}

const (
	// maxRow is how many commands run before the loop's other connections get a chance.
	maxRow = 32
	// maxWaiting is how many bytes may wait behind commands that run. At that the connection is not
	// read.
	maxWaiting = 256 << 10
	// flushAt is how many bytes of replies are gathered before they are queued.
	flushAt = 32 << 10
	// keptOut and keptArgs are how much room for replies and arguments is kept for later ones.
	keptOut  = 64 << 10
	keptArgs = 1 << 10
)

// A work is the commands of a connection that have come and are not answered. It exists while there
// are any, and is the task that runs them.
type work struct {
	dispatch.State
	c      *Conn
	inbox  inbox  // guarded by Conn.mu
	runner runner // the task's while it runs, else guarded by Conn.mu
}

// An inbox is what the loop knows of a work, and what has come while its task ran.
type inbox struct {
	phase   phase
	stalled bool // replies wait for the peer to read, and Drained for the work
	paused  bool // the connection is not read
	in      *buf.Block
	held    int              // bytes that the task had when it began
	scan    wire.CommandScan // of the incomplete command that the idle runner has
}

// A phase is the state of a work's task.
//
//	idle → running     more bytes, or Drained, make a command ready (Conn.take, Conn.goOn)
//	running → running  more commands are ready, and the task goes on (work.Kept, the pool)
//	running → asking   more commands are ready, and the loop is to dispatch them (work.Next)
//	running → idle     no command is ready (work.settle)
//	asking → running   the loop dispatches them (Conn.goOn)
type phase uint8

const (
	idle phase = iota
	running
	asking
)

// A runner runs commands.
type runner struct {
	cur   *buf.Block // the bytes that have come, nil: none
	pos   int        // where the next command of cur begins
	reply Reply
	cmd   Command
	args  [][]byte
	name  *name // of the command that runs
	mixed bool  // commands of several names have run
	row   int   // how many commands have run
}

// begin is for a call of Do, or of serveView.
func (r *runner) begin(c *Conn) {
	r.cmd.Conn = c
	r.reply.conn, r.reply.proto, r.reply.full = c, c.Protocol(), false
	r.name, r.mixed, r.row = nil, false, 0
}

// serveView runs the commands in p where they are, on the loop. It returns what is left: part of a
// command, or commands that have to wait.
func (c *Conn) serveView(p []byte) (rest []byte) {
	c.mu.Lock()
	busy := c.work != nil
	c.mu.Unlock()
	if busy {
		return p
	}
	w := &c.lane.desk
	w.c = c
	w.runner.begin(c)
	p = w.commands(p)
	r := &w.runner.reply
	if r.Flush(); cap(r.out) > keptOut {
		r.out = nil
	}
	if c.is(stateClosing) {
		return nil
	}
	return p
}

// take keeps what has come, and has the commands in it run. On the loop.
func (c *Conn) take(p []byte) {
	c.mu.Lock()
	w := c.work
	if w == nil {
		w = c.newWork()
	}
	in, r := &w.inbox, &w.runner
	if in.phase != idle || in.stalled {
		in.in, _ = gather(in.in, 0, p)
		if in.in.Len()+in.held >= maxWaiting && !in.paused {
			in.paused = true
			c.nc.Pause()
		}
		c.mu.Unlock()
		return
	}
	start := r.cur == nil
	r.cur, r.pos = gather(r.cur, r.pos, p)
	if !start {
		complete, err := in.scan.Complete(r.cur.Bytes()[r.pos:], c.grammar())
		start = complete || err != nil
	}
	if start {
		in.phase = running
	}
	c.mu.Unlock()
	if start {
		w.start()
	}
}

// newWork gives the connection a work. It is called under mu.
func (c *Conn) newWork() *work {
	w, _ := c.lane.live.spare.Get().(*work)
	if w == nil {
		w = new(work)
	}
	c.work, w.c = w, c
	return w
}

// gather puts p behind what stands in b from pos on, which it moves to a larger block if it must.
// Room is made for as much as has come, and as much again.
func gather(b *buf.Block, pos int, p []byte) (*buf.Block, int) {
	if b == nil {
		return buf.From(p), 0
	}
	if b.Free() >= len(p) {
		b.Append(p)
		return b, pos
	}
	rest := b.Bytes()[pos:]
	larger := buf.Get(2 * (len(rest) + len(p)))
	larger.Append(rest)
	larger.Append(p)
	b.Release()
	return larger, 0
}

// grammar is what the connection's commands must keep to.
func (c *Conn) grammar() *wire.Grammar {
	if c.is(stateAuthed) {
		return &c.lane.live.rules.grammar
	}
	return &c.lane.live.rules.strangers
}

// start has the first command run, inline or on the pool. On the loop, in a callback of the
// connection, while the task does not run and its phase is running.
func (w *work) start() {
	lane, r := w.c.lane, &w.runner
	var record *dispatch.Record
	if n := lane.names.of(lane.live, wire.PeekName(r.cur.Bytes()[r.pos:], maxName)); n != nil {
		record = &n.Record
	}
	if !lane.tasks.TryInline(w.c.nc, w, record) {
		lane.tasks.ToPool(w)
	}
}

// Do implements dispatch.Task: it runs commands and queues their replies. What it returns says
// whether its time teaches.
func (w *work) Do() (returned bool) {
	c, r := w.c, &w.runner
	c.mu.Lock()
	r.begin(c)
	w.join()
	c.mu.Unlock()
	defer func() { // a handler may end its goroutine
		r.reply.Flush()
		returned = returned && !r.mixed && r.row > 0
	}()
	if r.cur == nil {
		return true
	}
	rest := w.commands(r.cur.Bytes()[r.pos:])
	if r.pos = r.cur.Len() - len(rest); len(rest) == 0 {
		r.cur.Release()
		r.cur, r.pos = nil, 0
	}
	return true
}

// join puts what has come behind what there was. It is called under mu, while the task does not
// run.
func (w *work) join() {
	in, r := &w.inbox, &w.runner
	switch {
	case in.in == nil:
	case r.cur == nil:
		r.cur, r.pos = in.in, 0
	default:
		r.cur, r.pos = gather(r.cur, r.pos, in.in.Bytes())
		in.in.Release()
	}
	in.in, in.held = nil, 0
	if r.cur != nil {
		in.held = r.cur.Len() - r.pos
	}
}

// commands runs the commands in p that may run in a row, and returns what is left.
func (w *work) commands(p []byte) (rest []byte) {
	c, r := w.c, &w.runner
	for len(p) > 0 && !r.reply.full && !c.is(stateClosing) {
		n, args, err := c.grammar().Parse(p, r.args[:0])
		r.args = args
		switch {
		case err != nil:
			r.reply.next()
			if bad, ok := err.(*ProtocolError); ok {
				r.reply.Error("ERR Protocol error: " + bad.Reason)
			}
			r.reply.flushAndClose()
			return p
		case n == 0:
			return p
		case len(args) == 0: // an empty line counts for CLIENT REPLY SKIP, as in Redis
			r.reply.next()
			c.suppress(&r.reply)
			p = p[n:]
			continue
		}
		name := c.lane.names.of(c.lane.live, args[0])
		if r.row > 0 && !w.mayFollow(name) {
			return p
		}
		r.mixed = r.mixed || r.row > 0 && name != r.name
		r.name = name
		r.row++
		w.run(args)
		p = p[n:]
		if len(r.reply.out) >= flushAt {
			r.reply.Flush()
		}
	}
	return p
}

// mayFollow reports whether a command may run behind another one in the same call of Do. What is
// not known to be quick runs on the pool, and by itself, so that its time is known.
func (w *work) mayFollow(n *name) bool {
	switch {
	case w.c.lane.live.s.Dispatch != DispatchAuto:
		return true
	case w.runner.row >= maxRow:
		return false
	case w.HasLoop():
		return n != nil && n.Inline()
	}
	return n == w.runner.name
}

// run runs one command.
func (w *work) run(args [][]byte) {
	r := &w.runner
	r.reply.next()
	r.cmd.Args = args
	returned := false
	defer func() {
		if !returned {
			w.panicked(recover())
		}
		w.c.suppress(&r.reply)
	}()
	w.route()
	returned = true
}

// route finds the handler of a command, and calls it unless the command may not be sent now.
func (w *work) route() {
	c, l, r := w.c, w.c.lane.live, &w.runner
	var e *entry
	if n := r.name; n != nil {
		e = n.entry
		if n.own && l.rules.mux == nil && c.is(stateTransaction) && queueable[n.text] {
			e = nil // the handler keeps it
		}
	}
	switch {
	case e != nil:
		if e = e.find(&r.reply, &r.cmd); e == nil {
			return
		}
	case l.rules.mux != nil:
		r.reply.unknown(r.cmd.Args)
		return
	}
	if state := c.state.Load(); state&stateAuthed == 0 || state&(stateSubscribed|stateRESP3) == stateSubscribed {
		if r.reply.forbid(e, r.cmd.Args) {
			return
		}
	}
	switch {
	case e != nil:
		e.run(&r.reply, &r.cmd)
	case l.s.Handler != nil:
		l.s.Handler.ServeRESP(&r.reply, &r.cmd)
	default:
		r.reply.unknown(r.cmd.Args)
	}
}

// panicked answers a command whose handler has failed, or ends the connection if the peer has a
// part of another answer. It aborts the connection if the handler has ended its goroutine.
func (w *work) panicked(v any) {
	c, r := w.c, &w.runner.reply
	name := string(w.runner.cmd.Args[0])
	r.withdraw()
	if v == nil {
		c.Abort(fmt.Errorf("resp: the handler of %q ended its goroutine (runtime.Goexit)", name))
		return
	}
	what := "its command is answered with an error"
	if r.queued {
		what = "a part of its reply is with the peer, so that the connection is closed"
	}
	c.lane.live.rules.log.Error("resp: panic in a handler; "+what, "command", name,
		"remote", c.RemoteAddr(), "panic", v, "stack", string(debug.Stack()))
	if r.queued {
		r.flushAndClose()
		return
	}
	r.Error("ERR internal error")
}

// suppress drops a reply that the peer does not want, and goes on to the next (CLIENT REPLY).
func (c *Conn) suppress(w *Reply) {
	if !c.is(stateReplyOff | stateSkip | stateSkipping) {
		return
	}
	w.silence()
	c.mu.Lock()
	defer c.mu.Unlock()
	skip := c.is(stateSkip)
	c.set(stateSkip|stateSkipping, false)
	c.set(stateSkipping, skip)
}

const (
	// replyPiece is the most that is written at once.
	replyPiece = 1 << 20
	// layerRoom is more than TLS adds to a short reply. To a long one it adds less than its length.
	layerRoom = 1 << 10
)

// queue queues replies, whatever the limit is. full says that it was exceeded: then no more
// commands run until there is room. p may be used again.
func (c *Conn) queue(p []byte) (full bool) {
	for len(p) > 0 {
		piece := p[:min(len(p), replyPiece)]
		_, err := c.nc.Write(piece)
		if errors.Is(err, myriad.ErrFull) {
			full = true
			err = c.force(piece)
		}
		if err != nil && !errors.Is(err, net.ErrClosed) {
			c.nc.Abort(fmt.Errorf("resp: a reply could not be sent: %w", err))
		}
		p = p[len(piece):]
	}
	return full
}

// force queues p above the limit, and stalls the commands. The write that is refused is made under
// mu, so that Drained comes after that.
func (c *Conn) force(p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.nc.Write(p)
	if !errors.Is(err, myriad.ErrFull) {
		return err
	}
	if c.work == nil {
		c.newWork()
	}
	c.work.inbox.stalled = true
	c.nc.SetWriteLimit(c.nc.Queued() + 2*len(p) + layerRoom)
	_, err = c.nc.Write(p)
	c.nc.SetWriteLimit(c.limit())
	return err
}

// Next implements dispatch.Task: the loop dispatches more commands, if there are any, unless all of
// them run on the pool.
func (w *work) Next() dispatch.Task {
	c, pool := w.c, w.c.lane.live.s.Dispatch == DispatchPool
	next := asking
	if pool {
		next = running
	}
	switch w.settle(next) {
	case goesOn:
		if pool {
			return w
		}
		c.nc.Notify()
	case rests:
		c.nc.Notify()
	}
	return nil
}

// Kept implements dispatch.Task.
func (w *work) Kept() {
	c := w.c
	switch w.settle(running) {
	case goesOn:
		w.start()
	case rests:
		c.goOn()
	}
}

// An outcome is what follows a call of Do.
type outcome uint8

const (
	ended  outcome = iota // nothing; the work may be another connection's by now
	rests                 // the loop is to read on, or to close the connection
	goesOn                // more commands
)

// settle decides what follows a call of Do. next is the phase if there are more commands.
func (w *work) settle(next phase) outcome {
	c, in := w.c, &w.inbox
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.is(stateClosing) {
		c.forget()
		return ended
	}
	if w.ready() {
		in.phase = next
		return goesOn
	}
	in.phase = idle
	wants := !in.stalled && (in.paused || c.is(stateDraining))
	if w.runner.cur == nil && !in.stalled && !in.paused {
		c.forget()
	}
	if wants {
		return rests
	}
	return ended
}

// ready joins what has come and reports whether a command may run. It is called under mu, while the
// task does not run.
func (w *work) ready() bool {
	w.join()
	in, r := &w.inbox, &w.runner
	if r.cur == nil || in.stalled {
		return false
	}
	in.scan = wire.CommandScan{}
	complete, err := in.scan.Complete(r.cur.Bytes()[r.pos:], w.c.grammar())
	return complete || err != nil
}

// goOn does on the loop what a task has left to it, or what waited for room: it runs commands that
// follow, reads on, and closes a connection that drains.
func (c *Conn) goOn() {
	start, resume := false, false
	c.mu.Lock()
	w := c.work
	if w != nil && w.inbox.phase != running {
		in := &w.inbox
		if start = in.phase == asking || w.ready(); start {
			in.phase = running
		}
		if in.paused && !in.stalled && (!start || in.held < maxWaiting/2) {
			in.paused, resume = false, true
		}
		if !start && !in.stalled && !in.paused && w.runner.cur == nil {
			c.forget()
			w = nil
		}
	}
	ends := c.is(stateDraining) && (w == nil || w.inbox.phase == idle && !w.inbox.stalled)
	c.mu.Unlock()
	switch {
	case start:
		w.start()
	case ends:
		c.Close()
	}
	if resume {
		c.nc.Resume()
	}
}

// forget gives the work back. It is called under mu, while the task does not run.
func (c *Conn) forget() {
	w := c.work
	c.work = nil
	for _, b := range []*buf.Block{w.inbox.in, w.runner.cur} {
		if b != nil {
			b.Release()
		}
	}
	out, args := w.runner.reply.out, w.runner.args
	w.inbox, w.runner = inbox{}, runner{}
	if w.Spent() || cap(out) > keptOut || cap(args) > keptArgs {
		return
	}
	clear(args[:cap(args)])
	w.runner.reply.out, w.runner.args = out[:0], args
	w.State.Clear()
	w.c = nil
	c.lane.live.spare.Put(w)
}

// Notified goes on with commands that another goroutine has left to the loop.
func (h *handler) Notified(*myriad.Conn) { (*Conn)(h).goOn() }

// Drained implements myriad.Drainer.
func (h *handler) Drained(*myriad.Conn) {
	c := (*Conn)(h)
	c.drainedPushes()
	c.mu.Lock()
	if c.work != nil {
		c.work.inbox.stalled = false
	}
	c.mu.Unlock()
	c.goOn()
}

// Expired closes a connection that has been silent for too long.
func (h *handler) Expired(nc *myriad.Conn) {
	c := (*Conn)(h)
	c.mu.Lock()
	busy := c.work != nil && c.work.inbox.phase != idle
	c.mu.Unlock()
	if busy || c.is(stateSubscribed) || c.takesReply() {
		nc.SetTimer(c.lane.live.s.IdleTimeout)
		return
	}
	nc.Abort(os.ErrDeadlineExceeded)
}

// takesReply reports whether the client has taken a part of the reply since the last look, so that
// its idle time begins only now. Of a client that does not read, the queue is as long as then.
func (c *Conn) takesReply() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	queued, before := c.nc.Queued(), c.read().unsent
	if queued != before {
		c.change().unsent = queued
	}
	return queued != before
}

// Ended is the peer's FIN: what it has sent is answered, and the connection closed.
func (h *handler) Ended(*myriad.Conn) { (*Conn)(h).drain() }

// Truncated is the peer's FIN without a close_notify of TLS. A command shows its own end, so this
// is the same as Ended.
func (h *handler) Truncated(*myriad.Conn, error) { (*Conn)(h).drain() }

// Stopping is the engine's shutdown.
func (h *handler) Stopping(*myriad.Conn) { (*Conn)(h).drain() }

// drain closes the connection when the commands that have come are answered.
func (c *Conn) drain() {
	c.mu.Lock()
	c.set(stateDraining, true)
	busy := c.work != nil && (c.work.inbox.phase != idle || c.work.inbox.stalled)
	c.mu.Unlock()
	if !busy {
		c.Close()
	}
}

// Closed implements myriad.Handler.
func (h *handler) Closed(nc *myriad.Conn, err error) {
	if errors.Is(err, myriad.ErrNotMoved) {
		h.Moved(nc)
		return
	}
	c, l := (*Conn)(h), h.lane.live
	c.mu.Lock()
	c.set(stateClosing|stateClosed, true)
	if c.work != nil && c.work.inbox.phase != running {
		c.forget()
	}
	c.endPushes()
	c.mu.Unlock()
	c.runEnds()
	if l.s.OnClose != nil {
		l.s.OnClose(c, err)
	}
	l.conns.gone()
}

// drain begins an orderly end of all connections.
func (ln *lane) drain() { ln.end((*Conn).drain) }

// abort resets all connections.
func (ln *lane) abort() { ln.end(func(c *Conn) { c.nc.Abort(ErrServerClosed) }) }

// end has f called for all connections there are. One that opens later is drained.
func (ln *lane) end(f func(c *Conn)) {
	ln.drained = true
	ln.loop.Conns(0, math.MaxInt, func(nc *myriad.Conn) {
		if h, ok := nc.Handler().(*handler); ok && h.lane == ln {
			f((*Conn)(h))
		}
	})
}
