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

	dispatch.State
	runs     runs          // written by the loop
	gone     atomic.Bool   // its connection or stream has: set on the loop, which may have been handed off
	released atomic.Bool   // one of loop and handler is done with it; see also keptReleased
	end      atomic.Uint32 // an ending, the handler's
	wants    atomic.Uint32 // what the loop is asked to do, as bits of want
}

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
	// ask has the loop look at what the exchange wants.
	ask()
	// fail ends the answer, which cannot be completed, so that the client notices.
	fail()

	// These are called where dispatch.Task says.

	next() dispatch.Task
	// spent is called instead of next behind an inline task whose loop was handed off. The exchange
	// is not used again.
	spent()
	// returned looks at what the exchange wants after it has run inline. On the loop.
	returned()
	// refuse answers instead of the handler. On the loop.
	refuse(status int, reason string) error
	// release says that one of loop and handler is done with the exchange. The second call may make
	// it ready for another request.
	release()
}

// runs says where the handler of an exchange runs.
type runs uint8

// inline reports whether the handler runs, or has run, as an inline task.
func (x *exchange) inline() bool { return x.runs >= runsInline }

// An ending is how an answer ends for its handler.
type ending uint32

func (x *exchange) ending() ending { return ending(x.end.Load()) }

func (x *exchange) setEnding(e ending) { x.end.Store(uint32(e)) }

// complete reports whether the loop may go on behind the answer.
func (e ending) complete() bool { return e == answered || e == detached }

// over reports whether the handler has nothing more to write.
func (e ending) over() bool { return finishing <= e && e <= detached }

// taken reports whether the connection leaves HTTP.
func (e ending) taken() bool { return e >= upgraded }

const (
	open      ending = iota
	finishing        // the handler has returned: what it has not sent is being sent, unless that fails
	answered         // the handler has returned, and its answer has been sent
	detached         // a Stream continues the answer
	upgraded         // another handler speaks on the connection
	hijacked         // the connection leaves the engine
)

// want is what an exchange asks of its loop.
type want uint32

const (
	wantInput    want = 1 << iota // the body has been read below its low mark
	wantFinish                    // the answer is complete
	wantTakeover                  // upgrade or hijack
	wantDeadline                  // ResponseController has set one, for the body or the answer
	wantWriteBy                   // for the answer
	wantFail                      // HTTP/2: the answer cannot be completed
	wantAbort                     // HTTP/2: the rest of it is of no use
	wantGoAway                    // HTTP/2: the connection ends behind its streams
)

func (x *exchange) want(w want) {
	x.wants.Or(uint32(w))
	x.carrier.ask()
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

// Do implements dispatch.Task: it calls the handler and completes the answer. A handler does not
// begin when its client has disconnected or, with HTTP/2, reset the stream: else a client could
// make the server work for nothing, as fast as it can ask.
func (x *exchange) Do() (returned bool) {
	if x.inline() && x.gone.Load() || !x.inline() && !x.given.ctx.begin() {
		x.given.ctx.end()
		x.over()
		return false
	}
	return x.run()
}

// run calls the handler and completes the answer. It reports whether the handler has returned
// rather than panicked.
func (x *exchange) run() (returned bool) {
	defer x.over()
	if returned = x.callHandler(); returned {
		x.finish()
	}
	return returned
}

// callHandler reports whether the handler has returned rather than panicked. Its context ends
// before its answer does, as with net/http: a client that has that whole may count on it.
func (x *exchange) callHandler() (ok bool) {
	defer func() {
		driver.Unlabel() // the goroutine runs other handlers next
		if x.given.ctx.end(); ok {
			return
		}
		if v := recover(); v != nil && v != http.ErrAbortHandler {
			x.lane.s.logf("http: panic serving %s: %v\n%s", x.given.request.RemoteAddr, v, debug.Stack())
		}
		x.carrier.fail()
	}()
	defer x.removeFiles()
	x.lane.s.handlerOf(&x.given.request).ServeHTTP(x.carrier.writer(), &x.given.request)
	return true
}

// removeFiles removes those of a multipart form: they are the handler's only while it runs.
func (x *exchange) removeFiles() {
	if form := x.given.request.MultipartForm; form != nil {
		_ = form.RemoveAll()
	}
}

// finish completes the answer after the handler has returned.
func (x *exchange) finish() {
	switch x.ending() {
	case open:
		x.setEnding(finishing)
		if err := x.out.finish(); err != nil {
			x.carrier.fail()
			return
		}
		x.setEnding(answered)
		x.complete()
	case detached:
		x.complete()
	}
}

// over ends the exchange for its handler, also for one that has ended its goroutine.
func (x *exchange) over() {
	if x.gone.Load() && x.given.ctx.outlivedConn() {
		defer x.outlived()
	}
	x.out.drop()
	x.body.release()
	if !x.inline() {
		x.offPool()
	}
}

// complete says that the answer is. It is the handler's last. Behind an inline task the loop looks
// by itself.
func (x *exchange) complete() {
	if !x.inline() {
		x.want(wantFinish)
	}
}

// Next implements dispatch.Task: it returns the next exchange of a chain, if x has ended in such a
// way that it may follow. Behind an inline task whose loop was handed off, the loop goes on with
// the connection.
func (x *exchange) Next() dispatch.Task {
	if x.inline() {
		if x.ending().complete() {
			x.wants.Or(uint32(wantFinish))
		}
		x.carrier.ask()
		x.carrier.spent()
		return nil
	}
	return x.carrier.next()
}

// Kept implements dispatch.Task: the loop goes on with the connection at once.
func (x *exchange) Kept() {
	x.runs = kept
	x.carrier.returned()
	x.carrier.release()
}

// takeWants returns what the loop is asked to do. It has made the deadline of the answer the loop's
// already, if that has moved.
func (x *exchange) takeWants() (w want) {
	if x.wants.Load() != 0 {
		w = want(x.wants.Swap(0))
		x.moveWriteBy(w)
	}
	if x.runs >= kept && x.ending().complete() {
		w |= wantFinish
	}
	return w
}

// stream is what continues the answer, nil if nothing does.
func (x *exchange) stream() *Stream {
	if x.ending() != detached {
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
	x.runs = runsNot
	if x.given.ctx.end(); x.given.ctx.outlivedConn() {
		defer x.outlived()
	}
	x.body.release()
	if err := x.carrier.refuse(status, reason); err != nil {
		x.carrier.fail() // a conn that takes no more needs no answer, but an end
		return
	}
	x.want(wantFinish)
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

// offPool is the end of a handler that ran on the pool.
func (x *exchange) offPool() {
	if x.Excused() {
		x.lane.st.tasks.Widen(-1)
		return
	}
	x.lane.st.load.end()
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

func (x *exchange) take(t takeover) error {
	x.out.mu.Lock()
	defer x.out.mu.Unlock()
	if x.ending().taken() {
		return http.ErrHijacked
	}
	x.out.more().takeover = t
	if t.handler != nil {
		x.setEnding(upgraded)
	} else {
		x.setEnding(hijacked)
	}
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
	if x.ending() != hijacked {
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
	x.gone.Store(true)
	x.out.lose(err) // first: a goroutine woken by its body may write
	if x.body != nil {
		x.body.fail(x.netError("read", err))
	}
	drop()
	if end != nil {
		x.out.setLastState(end)
		end.left.Add(1)
	}
	if x.given.ctx.loseConn(x.runs != runsNot) {
		x.lane.st.conns.Add(1) // until the handler has ended
	} else {
		end.release()
	}
	x.takeoverLost(x.conn(), err)
	if s := x.stream(); s != nil {
		s.lost(err)
	}
}

// outlived is the end of a handler that its connection has not outlived.
func (x *exchange) outlived() {
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
	x.moveWriteBy(want(x.wants.And(^uint32(wantWriteBy))))
}

func (x *exchange) moveWriteBy(w want) {
	if w&wantWriteBy != 0 {
		x.writeBy, x.looked = moment(x.out.writeBy.Load()), false
	}
}

// keptFields is how many fields a header may have had whose map is kept: maps do not shrink.
const keptFields = 64

// alone reports whether the other holder has released x already.
func (x *exchange) alone() (yes bool) {
	if x.runs < kept {
		return x.released.Swap(true)
	}
	yes, x.runs = x.runs == keptReleased, keptReleased // both are the loop
	return yes
}

// reusable reports whether nothing else that was made for this request, by the server or at a
// handler's wish, refers to x.
func (x *exchange) reusable() bool {
	return x.out.seldom == nil && x.out.lost == nil && x.out.failed == nil && x.body == nil
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

const (
	runsNot      runs = iota // nowhere: it is refused, or waits in a chain
	runsOnPool               // or it has run there, or is going to
	runsInline               // as an inline task, at once
	kept                     // it has run inline and the loop goes on: only the loop touches the exchange now
	keptReleased             // like kept, and one of loop and handler is done with it
)
