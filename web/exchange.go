package web

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"syscall"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/internal/driver"
)

// An exchange is one request and its answer, whatever the version of HTTP: a head, a body that is
// fed, an answer that is written, and an end. It is part of an h1stream or an h2stream, its
// carrier. The loop makes it; its handler runs elsewhere.
type exchange struct {
	carrier carrier
	lane    *lane
	given   *given
	fields  http.Header // the request's Header as it was made: a handler may have put its own there
	began   *stamp      // the date when it did
	body    *body       // nil: the request has none
	out     response

	writeBy moment // when the loop acts on the deadline of the answer; never: none, or it has passed
	looked  bool   // that had passed when something had not been sent yet; the loop's
	inlined bool   // the handler runs, or has run, as an inline task; written by the loop

	dispatch.State
	at      atomic.Uint32 // a progress
	demands atomic.Uint32 // what the loop is asked to do, as bits of demand
}

// A progress is how far an exchange is on its way.
type progress uint32

const (
	waiting  progress = iota // its handler has not been dispatched
	handling                 // its handler has been, and the answer is open

	detached  // a Stream continues the answer
	outlived  // it does, and the handler has returned
	finishing // the handler has returned: what it has not sent is being sent, unless that fails
	completed // the whole answer has been sent
	answered  // likewise, and the exchange is the loop's again, which may use it for another request
	declined  // the loop has answered instead of the handler

	upgrading // Upgrade is sending its head
	upgraded  // another handler speaks on the connection
	hijacked  // the connection leaves the engine

	progresses
)

// follows says behind what each step may come, and the comments who makes it. If its answer cannot
// be completed, an exchange stays where it is, and its connection or stream ends.
var follows = [progresses]uint32{
	handling:  1 << waiting,  // the loop, or the goroutine that ran the one before in a chain
	detached:  1 << handling, // Detached
	outlived:  1 << detached, // the end of the handler
	finishing: 1 << handling, // likewise
	completed: 1 << finishing,
	answered:  1 << completed,           // comesBack
	declined:  1<<waiting | 1<<handling, // the loop, also if the pool has no room
	upgrading: 1 << handling,            // Upgrade
	upgraded:  1<<upgrading | 1<<handling,
	hijacked:  1 << handling, // Hijack
}

func (x *exchange) progress() progress { return progress(x.at.Load()) }

// enter makes a step, and reports whether it may come behind the one before.
func (x *exchange) enter(to progress) bool {
	at := x.at.Load()
	return follows[to]&(1<<at) != 0 && x.at.CompareAndSwap(at, uint32(to))
}

// over reports whether the handler has nothing more to write.
func (s progress) over() bool { return detached <= s && s <= declined }

// taken reports whether the connection leaves HTTP.
func (s progress) taken() bool { return s >= upgrading }

// inline reports whether the handler runs, or has run, as an inline task.
func (x *exchange) inline() bool { return x.inlined }

// A carrier carries an exchange in one version of HTTP: *h1stream, *h2stream. What net/http
// promises of an answer is decided above it, in response; a carrier only encodes it and sends it.
type carrier interface {
	// These run on the handler's goroutine. What they send they send by response.sendWhenRoom,
	// which waits where the handler may.

	// snapshot encodes status and header of the answer as they are now.
	snapshot()
	// interim sends an informational answer with the header as it is now.
	interim(status int) error
	// head completes and sends what snapshot has begun, with what has been gathered of the body.
	// next comes behind it, and serves to find the type. last: nothing follows.
	head(next []byte, last bool) error
	// data sends a piece of the body. last: it is the last, if not empty, and the trailers follow.
	data(p []byte, last bool) error
	// file sends n bytes of f from off on; f may be closed at once. canSendFile says whether it
	// can, once the head has been sent.
	file(f *os.File, off, n int64) error
	canSendFile() bool
	// coding is what a Transfer-Encoding of the handler means to the framing.
	coding(values []string) coding
	// ownField looks at a field that concerns the connection, and reports whether it is left out.
	ownField(name string, values []string) (skip bool)
	// hasTurn reports whether what is sent leaves at once, rather than behind other answers.
	hasTurn() bool
	// outlive prepares the answer for a Stream, and sink is by what that sends behind the head.
	outlive() error
	sink() sink
	// writer is what the handler is given.
	writer() http.ResponseWriter
	// upgrade and hijack take the connection over, where the version of HTTP has that.
	upgrade(head []byte, h myriad.Handler) error
	hijack() (net.Conn, *bufio.ReadWriter, error)

	// These may be called on any goroutine and never block.

	// invite sends 100 Continue: myriad.ErrFull.
	invite() error
	// notify has the loop look at what the exchange asks for.
	notify()
	// fail ends the answer, which cannot be completed, so that the client notices.
	fail()

	// These take the exchange back from its handler: it has come to its last progress, and is the
	// loop's. One of them is called, once.

	// comesBack is called off the loop. It returns the next of a chain whose goroutine this is.
	comesBack() dispatch.Task
	// returned is called on the loop, behind an inline task.
	returned()
	// refuse is called on the loop, and answers instead of the handler.
	refuse(status int, reason string) error
}

// A demand is what an exchange asks of its loop while its handler runs.
type demand uint32

const (
	demandInput    demand = 1 << iota // the body has been read below its low mark
	demandDeadline                    // ResponseController has set one, for the body or the answer
	demandWriteBy                     // for the answer
	demandGoAway                      // HTTP/2: the connection ends behind its streams
)

func (x *exchange) demand(d demand) {
	x.demands.Or(uint32(d))
	x.carrier.notify()
}

// takeDemands returns what the loop is asked to do. It has made the deadline of the answer the
// loop's already, if that has moved.
func (x *exchange) takeDemands() (d demand) {
	if x.demands.Load() != 0 {
		d = demand(x.demands.Swap(0))
		x.moveWriteBy(d)
	}
	return d
}

// attach makes x the exchange of a carrier on a connection.
func (x *exchange) attach(c carrier, k *link) {
	x.carrier, x.lane, x.began = c, k.lane, k.lane.st.clock.at(k.lane.loop.Now())
	x.given.ctx.link = k
	x.out.x = x
}

// A task is a carrier as what is dispatched.
type task interface {
	dispatch.Task
	base() *exchange
}

func (x *exchange) base() *exchange { return x }

// begin reports whether the handler is to run. It does not if its client has disconnected or, with
// HTTP/2, reset the stream: else a client could make the server work for nothing, as fast as it can
// ask. It may be called twice.
func (x *exchange) begin() bool {
	x.enter(handling)
	return x.given.ctx.begin()
}

// Do implements dispatch.Task: it calls the handler and completes the answer. It reports whether
// the handler has returned rather than panicked.
func (x *exchange) Do() (returned bool) {
	defer x.over()
	if !x.begin() {
		x.given.ctx.end()
		return false
	}
	if returned = x.callHandler(); !returned {
		return false
	}
	if x.enter(outlived) || !x.enter(finishing) {
		return true
	}
	if err := x.out.finish(); err != nil {
		x.carrier.fail()
		return true
	}
	x.enter(completed)
	return true
}

// callHandler reports whether the handler has returned rather than panicked. Its context ends
// before its answer does, as with net/http: a client that has that whole may count on it.
func (x *exchange) callHandler() (ok bool) {
	r := &x.given.request
	defer func() {
		driver.Unlabel() // the goroutine runs other handlers next
		if x.given.ctx.end(); ok {
			return
		}
		if v := recover(); v != nil && v != http.ErrAbortHandler {
			x.lane.s.logf("http: panic serving %s: %v\n%s", r.RemoteAddr, v, debug.Stack())
		}
		x.carrier.fail()
	}()
	defer func() {
		if form := r.MultipartForm; form != nil {
			_ = form.RemoveAll() // its files are the handler's only while it runs
		}
	}()
	x.lane.s.handlerOf(r).ServeHTTP(x.carrier.writer(), r)
	return true
}

// over is the end of the handler, also of one that has ended its goroutine.
func (x *exchange) over() {
	if x.given.ctx.outlivedConn() {
		defer x.connGone()
	}
	x.out.drop()
	x.body.release()
	switch {
	case x.inline():
	case x.Excused():
		x.lane.st.tasks.Widen(-1)
	default:
		x.lane.st.load.end()
	}
}

// Next implements dispatch.Task: it gives the exchange back to the loop, and returns the next one
// of a chain if that may follow.
func (x *exchange) Next() dispatch.Task {
	return x.carrier.comesBack()
}

// Kept implements dispatch.Task: the loop goes on with the connection at once.
func (x *exchange) Kept() {
	x.complete()
	x.carrier.returned()
}

// complete gives the exchange back to the loop, and reports whether that goes on with it. It does
// not if the answer cannot be completed, or the connection has a new owner.
func (x *exchange) complete() bool { return x.enter(answered) || x.progress() == outlived }

// stream is what continues the answer, nil if nothing does.
func (x *exchange) stream() *Stream {
	if s := x.progress(); s != detached && s != outlived {
		return nil
	}
	x.out.mu.Lock()
	defer x.out.mu.Unlock()
	return x.out.seldom.stream
}

// date is what the Date field says. That of an inline task is the date of the poll cycle in which
// its request came, a few milliseconds ago at most.
func (x *exchange) date() string {
	if x.HasLoop() {
		return x.began.text
	}
	return x.lane.st.clock.at(x.lane.st.engine.System().Now()).text
}

func (x *exchange) conn() *myriad.Conn { return x.given.ctx.link.c }

// refuse answers an exchange whose handler does not run. On the loop.
func (x *exchange) refuse(status int, reason string) {
	x.enter(declined)
	if x.given.ctx.end(); x.given.ctx.outlivedConn() {
		defer x.connGone()
	}
	x.body.release()
	if err := x.carrier.refuse(status, reason); err != nil {
		x.carrier.fail() // a conn that takes no more needs no answer, but an end
	}
}

// errorText is the body of an answer that the server gives itself.
func errorText(status int, reason string) string {
	text := strconv.Itoa(status) + " " + http.StatusText(status)
	if reason != "" {
		text += ": " + reason
	}
	return text
}

// leavesPool is for a handler that has hijacked its connection: from now on it counts no more.
func (x *exchange) leavesPool() {
	if x.Excuse(); x.inline() {
		return
	}
	x.lane.st.load.end()
	x.lane.st.tasks.Widen(1)
}

// awaitClient parks the goroutine of a handler until something has come from its client, or gone to
// it. Meanwhile the handler does not count.
func (x *exchange) awaitClient(p driver.Parker) {
	st := x.lane.st
	if x.inline() || x.Excused() || !st.tasks.Widen(1) {
		p.Park()
		return
	}
	st.load.end()
	p.Park()
	st.tasks.Widen(-1)
	st.load.goOn()
}

// A takeover is how a connection leaves HTTP: to another handler on the loop, or out of the engine.
type takeover struct {
	handler myriad.Handler                              // upgrade
	done    func(nc net.Conn, unread []byte, err error) // hijack
	nc      net.Conn                                    // what Hijack has returned
}

// take begins a takeover, unless there is one.
func (x *exchange) take(t takeover, to progress) error {
	x.out.mu.Lock()
	defer x.out.mu.Unlock()
	if !x.enter(to) {
		return http.ErrHijacked
	}
	x.out.more().takeover = t
	return nil
}

// takeBack undoes an upgrade of a connection that has gone, unless the new handler has been told
// already.
func (x *exchange) takeBack() bool {
	return x.endTakeover().handler != nil
}

// endTakeover returns the takeover, if the new owner has not been told yet, and leaves it empty.
func (x *exchange) endTakeover() (t takeover) {
	x.out.mu.Lock()
	defer x.out.mu.Unlock()
	if s := x.out.seldom; s != nil {
		t, s.takeover = s.takeover, takeover{}
	}
	return t
}

// hijacked is the connection if it has been hijacked, or nil.
func (x *exchange) hijacked() net.Conn {
	if x.progress() != hijacked {
		return nil
	}
	x.out.mu.Lock()
	defer x.out.mu.Unlock()
	return x.out.seldom.takeover.nc
}

// takeoverLost is called when the connection is lost before the loop could give it away: the caller
// of the takeover gets the error.
func (x *exchange) takeoverLost(c *myriad.Conn, err error) {
	switch t := x.endTakeover(); {
	case t.handler != nil:
		t.handler.Opened(c)
		t.handler.Closed(c, err)
	case t.done != nil:
		t.done(nil, nil, err)
	}
}

// lose ends whatever the handler may be waiting for, because its connection or stream has gone.
// drop discards what waits to be sent.
func (x *exchange) lose(err error, end *lastState, drop func()) {
	if err == nil {
		err = myriad.ErrClosed
	}
	x.out.lose(err) // first: a goroutine woken by its body may write
	if x.body != nil {
		x.body.fail(x.netError("read", err))
	}
	drop()
	if end != nil {
		x.out.setLastState(end)
		end.left.Add(1)
	}
	if at := x.progress(); x.given.ctx.loseConn(at != waiting && at != declined) {
		x.lane.st.conns.Add(1) // until the handler has ended
	} else {
		end.release()
	}
	x.takeoverLost(x.conn(), err)
	if s := x.stream(); s != nil {
		s.lost(err)
	}
}

// connGone is the end of a handler that its connection has not outlived.
func (x *exchange) connGone() {
	defer x.lane.st.connGone()
	x.out.lastState().release()
}

// A lastState is the call of ConnState with StateClosed, which waits until no handler of the
// connection runs, as in net/http.
type lastState struct {
	k    *link
	left atomic.Int32 // holders: those handlers, and the loop
}

func newLastState(k *link) *lastState {
	e := &lastState{k: k}
	e.left.Store(1)
	return e
}

// release is called by the loop, and by each handler when it ends. A nil lastState does nothing.
func (e *lastState) release() {
	if e != nil && e.left.Add(-1) == 0 {
		e.k.lane.s.reportOf(e.k.seen(), http.StateClosed)
	}
}

// netError is err as a net.Conn returns it: handlers, and frameworks, look for what is inside of a
// *net.OpError.
func (x *exchange) netError(op string, err error) error { return netError(x.conn(), op, err) }

func netError(c *myriad.Conn, op string, err error) error {
	var number syscall.Errno
	switch {
	case errors.As(err, &number):
		if op == "write" && number == syscall.ECONNRESET {
			number = syscall.EPIPE // so the kernel calls it when a read has had the reset, and here a read always has
		}
		err = os.NewSyscallError(op, number)
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = os.ErrDeadlineExceeded
	case errors.Is(err, myriad.ErrClosed) || errors.Is(err, http.ErrServerClosed):
		err = net.ErrClosed
	}
	local := c.LocalAddr()
	return &net.OpError{Op: op, Net: local.Network(), Source: local, Addr: c.RemoteAddr(), Err: err}
}

// setWriteBy bounds the answer before its handler runs.
func (x *exchange) setWriteBy(by moment) {
	x.writeBy = by
	x.out.writeBy.Store(int64(by))
}

// takeWriteBy makes the deadline of the answer the loop's if it has moved. On the loop.
func (x *exchange) takeWriteBy() {
	x.moveWriteBy(demand(x.demands.And(^uint32(demandWriteBy))))
}

func (x *exchange) moveWriteBy(d demand) {
	if d&demandWriteBy != 0 {
		x.writeBy, x.looked = moment(x.out.writeBy.Load()), false
	}
}

// keptFields is how many fields a header may have had whose map is kept: maps do not shrink.
const keptFields = 64

// reusable reports whether nothing else refers to x: neither what was made for this request, by the
// server or at a handler's wish, nor the engine.
func (x *exchange) reusable() bool {
	return x.progress() == answered && !x.Spent() &&
		x.out.seldom == nil && x.out.lost == nil && x.out.failed == nil && x.body == nil
}

func emptied(h http.Header) http.Header {
	switch n := len(h); {
	case n > keptFields:
		return nil
	case n > 0:
		clear(h)
	}
	return h
}
