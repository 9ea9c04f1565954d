package resp

import (
	"fmt"
	"runtime/debug"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/dispatch"
)

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
// are any, and is the task that runs them. Fields are guarded by Conn.mu, or belong to the
// goroutine that runs the task.
type work struct {
	dispatch.State
	c       *Conn
	running bool // guarded: the dispatcher has it, or will have
	stalled bool // guarded: replies wait for the peer to read, and Drained for the work
	paused  bool // guarded: the connection is not read
	ask     bool // guarded: the loop is to dispatch what follows
	held    int  // guarded: bytes in cur, when the task began

	in  *buf.Block // guarded: came while it ran
	cur *buf.Block // the task's while it runs, else guarded: what came before that
	pos int        // likewise: where the next command of cur begins

	scan commandScan // guarded: of the incomplete command in cur, while the task does not run

	reply Reply // the task's, as what follows
	cmd   Command
	args  [][]byte
	name  *name // of the command that runs
	mixed bool  // commands of several names have run
	row   int   // how many commands have run
}

// take keeps what has come, and has the commands in it run. On the loop.
func (c *Conn) take(p []byte) {
	c.mu.Lock()
	w := c.work
	if w == nil {
		w = c.lane.live.workOf(c)
		c.work = w
	}
	if w.running || w.stalled {
		w.in, _ = gather(w.in, 0, p)
		if w.in.Len()+w.held >= maxWaiting && !w.paused {
			w.paused = true
			c.nc.Pause()
		}
		c.mu.Unlock()
		return
	}
	fresh := w.cur == nil
	w.cur, w.pos = gather(w.cur, w.pos, p)
	start := fresh
	if !fresh {
		complete, err := w.scan.complete(w.cur.Bytes()[w.pos:], c.grammar())
		start = complete || err != nil
	}
	w.running = start
	c.mu.Unlock()
	if start {
		w.start()
	}
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
func (c *Conn) grammar() *commandGrammar {
	if c.is(stateAuthed) {
		return &c.lane.live.grammar
	}
	return &c.lane.live.strangers
}

// start has the first command run, inline or on the pool. On the loop, in a callback of the
// connection, while the task is idle and marked as running.
func (w *work) start() {
	l := w.c.lane.tasks
	var r *dispatch.Record
	if n := w.c.lane.names.of(w.c.lane.live, peekName(w.cur.Bytes()[w.pos:])); n != nil {
		r = &n.Record
	}
	if !l.TryInline(w.c.nc, w, r) {
		l.ToPool(w)
	}
}

// peekName is the name of the command at the start of p, if it has come and is no inline command's.
func peekName(p []byte) []byte {
	if len(p) == 0 || p[0] != '*' {
		return nil
	}
	_, n, ok := header(p)
	if n == 0 || !ok || n >= len(p) {
		return nil
	}
	size, m, ok := header(p[n:])
	if m == 0 || !ok || size < 0 || size > maxName || int64(len(p)-n-m) < size {
		return nil
	}
	return p[n+m:][:size]
}

// Do implements dispatch.Task: it runs commands and queues their replies. What it returns says
// whether its time teaches.
func (w *work) Do() (returned bool) {
	w.claim()
	w.row, w.mixed, w.reply.full, w.name = 0, false, false, nil
	defer func() { // a handler may end its goroutine
		w.flush()
		returned = returned && !w.mixed && w.row > 0
	}()
	for w.more() {
	}
	return true
}

// claim puts what has come meanwhile behind what there was.
func (w *work) claim() {
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	w.reply.proto, w.reply.conn, w.reply.task, w.cmd.Conn = c.Protocol(), c, w, c
	w.join()
}

// more runs one command of cur, and reports whether another one may follow at once.
func (w *work) more() bool {
	c := w.c
	if w.cur == nil || c.is(stateClosing) {
		return false
	}
	n, args, err := c.grammar().parse(w.cur.Bytes()[w.pos:], w.args[:0])
	w.args = args
	switch {
	case err != nil:
		w.violated(err)
		return false
	case n == 0:
		return false
	case len(args) == 0:
		w.nothing()
		w.advance(n)
		return true
	}
	name := c.lane.names.of(c.lane.live, args[0])
	if w.row > 0 && !w.mayFollow(name) {
		return false
	}
	w.mixed = w.mixed || w.row > 0 && name != w.name
	w.name = name
	w.row++
	w.run(args)
	if len(w.reply.out) >= flushAt {
		w.flush()
	}
	w.advance(n)
	return !w.reply.full
}

// advance goes behind a command.
func (w *work) advance(n int) {
	if w.pos += n; w.pos == w.cur.Len() {
		w.cur.Release()
		w.cur, w.pos = nil, 0
	}
}

// mayFollow reports whether a command may run behind another one in the same call of Do. What is
// not known to be quick runs on the pool, and by itself, so that its time is known.
func (w *work) mayFollow(n *name) bool {
	l := w.c.lane.live
	switch {
	case l.pool || l.inline:
		return true
	case w.row >= maxRow:
		return false
	case w.HasLoop():
		return n != nil && n.Inline()
	}
	return n == w.name
}

// run runs one command.
func (w *work) run(args [][]byte) {
	w.reply.next()
	w.cmd.Args = args
	returned := false
	defer func() {
		if !returned {
			w.panicked(recover())
		}
		if w.c.is(stateReplyOff | stateSkip | stateSkipping) {
			w.suppress()
		}
	}()
	w.serve()
	returned = true
}

// nothing runs a command without arguments: an empty line counts for CLIENT REPLY SKIP, as in
// Redis.
func (w *work) nothing() {
	if w.c.is(stateSkip | stateSkipping) {
		w.reply.next()
		w.suppress()
	}
}

// suppress drops a reply that the peer does not want, and goes on to the next (CLIENT REPLY).
func (w *work) suppress() {
	w.reply.silence()
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	skip := c.is(stateSkip)
	c.unset(stateSkip | stateSkipping)
	if skip {
		c.set(stateSkipping)
	}
}

// panicked answers a command whose handler has failed, or ends the connection if the peer has a
// part of another answer. It aborts the connection if the handler has ended its goroutine.
func (w *work) panicked(v any) {
	l := w.c.lane.live
	w.reply.withdraw()
	if v == nil {
		w.c.nc.Abort(fmt.Errorf("resp: the handler of %q ended its goroutine (runtime.Goexit)", w.cmd.Args[0]))
		return
	}
	what := "its command is answered with an error"
	if w.reply.queued {
		what = "a part of its reply is with the peer, so that the connection is closed"
	}
	l.log.Error("resp: panic in a handler; "+what, "command", string(w.cmd.Args[0]),
		"remote", w.c.RemoteAddr(), "panic", v, "stack", string(debug.Stack()))
	if w.reply.queued {
		w.close()
		return
	}
	w.reply.Error("ERR internal error")
}

// violated answers bytes that are no command, and closes.
func (w *work) violated(err error) {
	w.reply.next()
	if bad, ok := err.(*ProtocolError); ok {
		w.reply.Error("ERR Protocol error: " + bad.Reason)
	}
	w.close()
}

// close has the connection closed behind the replies.
func (w *work) close() {
	w.flush()
	w.c.Close()
}

// flush queues the replies.
func (w *work) flush() {
	if len(w.reply.out) > 0 {
		w.reply.Flush()
	}
}

// Next implements dispatch.Task.
func (w *work) Next() dispatch.Task {
	c := w.c
	switch w.settle(!c.lane.live.pool) {
	case goesOn:
		if c.lane.live.pool {
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
	switch w.settle(false) {
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

// settle decides what follows a call of Do. ask leaves more commands to the loop.
func (w *work) settle(ask bool) outcome {
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.is(stateClosing) {
		c.forget()
		return ended
	}
	if w.ready() {
		w.ask = ask
		return goesOn
	}
	w.running = false
	wants := w.paused && !w.stalled || c.is(stateDraining) && !w.stalled
	if w.cur == nil && !w.stalled && !w.paused {
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
	if w.cur == nil || w.stalled {
		return false
	}
	w.scan = commandScan{}
	complete, err := w.scan.complete(w.cur.Bytes()[w.pos:], w.c.grammar())
	return complete || err != nil
}

// join puts what has come behind what there was. It is called under mu, while the task does not
// run.
func (w *work) join() {
	switch {
	case w.in == nil:
	case w.cur == nil:
		w.cur, w.pos = w.in, 0
	default:
		w.cur, w.pos = gather(w.cur, w.pos, w.in.Bytes())
		w.in.Release()
	}
	w.in = nil
	w.held = 0
	if w.cur != nil {
		w.held = w.cur.Len() - w.pos
	}
}

// goOn does on the loop what a task has left to it, or what waited for room: it runs commands that
// follow, reads on, and closes a connection that drains.
func (c *Conn) goOn() {
	start, resume := false, false
	c.mu.Lock()
	w := c.work
	if w != nil && (w.ask || !w.running) {
		start = w.ask || w.ready()
		w.ask, w.running = false, start
		if w.paused && !w.stalled && (!start || w.held < maxWaiting/2) {
			w.paused, resume = false, true
		}
		if !start && !w.stalled && !w.paused && w.cur == nil {
			c.forget()
			w = nil
		}
	}
	ends := c.is(stateDraining) && (w == nil || !w.running && !w.stalled)
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

// serveView runs the commands in p where they are, on the loop, and returns what is left: part of a
// command, or what has to wait.
func (c *Conn) serveView(p []byte) (rest []byte) {
	c.mu.Lock()
	busy := c.work != nil
	c.mu.Unlock()
	if busy {
		return p
	}
	w := &c.lane.desk
	w.c, w.cmd.Conn, w.reply.full = c, c, false
	w.reply.proto, w.reply.conn, w.reply.task = c.Protocol(), c, w
	for len(p) > 0 && !w.reply.full && !c.is(stateClosing) {
		n, args, err := c.grammar().parse(p, w.args[:0])
		w.args = args
		if err != nil {
			w.violated(err)
			break
		}
		if n == 0 {
			break
		}
		if p = p[n:]; len(args) > 0 {
			w.name = c.lane.names.of(c.lane.live, args[0])
			w.run(args)
		} else {
			w.nothing()
		}
		if len(w.reply.out) >= flushAt {
			w.flush()
		}
	}
	w.flush()
	if cap(w.reply.out) > keptOut {
		w.reply.out = nil
	}
	if c.is(stateClosing) {
		return nil
	}
	return p
}

// workOf gives the connection a work.
func (l *live) workOf(c *Conn) *work {
	w, _ := l.spare.Get().(*work)
	if w == nil {
		w = new(work)
	}
	w.c = c
	return w
}

// forget gives the work back. It is called under mu, while the task does not run.
func (c *Conn) forget() {
	w := c.work
	c.work = nil
	if w.in != nil {
		w.in.Release()
	}
	if w.cur != nil {
		w.cur.Release()
	}
	w.in, w.cur, w.pos, w.held, w.scan = nil, nil, 0, 0, commandScan{}
	w.stalled, w.paused, w.ask, w.running = false, false, false, false
	if w.Spent() || cap(w.reply.out) > keptOut || cap(w.args) > keptArgs {
		return
	}
	clear(w.args[:cap(w.args)])
	w.State.Clear()
	w.c, w.name, w.cmd, w.reply = nil, nil, Command{}, Reply{out: w.reply.out[:0]}
	c.lane.live.spare.Put(w)
}
