// Package exchange is one request and its answer: what net/http promises, whatever the version of
// HTTP. Packages http1 and http2 above it are the versions; each of them carries exchanges.
//
// A loop makes an exchange of a head, and dispatches its handler (Exchange.Dispatch). The handler
// gets a Given for a ResponseWriter and a Body, which the loop feeds. What it writes is gathered
// and framed by a Response, and sent by the Carrier. At its end the exchange goes back to the loop
// by one step and one call (Exchange.Next). The table follows has all steps.
package exchange

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/dispatch"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/internal/retryafter"
	"github.com/myriad-go/myriad/workers"
)

const (
	// maxFields bounds the header fields of one request, which is answered with 431 above it.
	MaxFields = 1024
	// maxDiscard is how much of a body that its handler did not read is read away to keep the
	// connection.
	MaxDiscard = 256 << 10
	// headTimeout bounds a new connection's silence, and an incomplete head, when no timeout is
	// set.
	HeadTimeout = time.Minute
	// stopTimeout is for the last answer of a connection that is being shut down or refused.
	StopTimeout = 5 * time.Second
	// newConnGrace is how long Shutdown lets a connection live on which no request has begun: one
	// may be on its way.
	NewConnGrace = 5 * time.Second
)

// An Exchange is one request and its answer. It has a head, a body that is fed, an answer that is
// written, and an end. It is part of an http1.Stream or an http2.Stream, its
// carrier. The loop makes it; its handler runs elsewhere.
type Exchange struct {
	Carrier Carrier
	Lane    *Lane
	Given   *Given
	Fields  http.Header // the request's Header as it was made: a handler may have put its own there
	began   *stamp      // the date when it did
	Body    *Body       // nil: the request has none
	Out     Response

	WriteBy Moment // when the loop acts on the deadline of the answer; never: none, or it has passed
	Looked  bool   // that had passed when something had not been sent yet; the loop's
	Inlined bool   // the handler runs, or has run, as an inline task; written by the loop

	dispatch.State
	at      atomic.Uint32 // a progress
	demands atomic.Uint32 // what the loop is asked to do, as bits of demand
}

// A progress is how far an exchange is on its way.
type progress uint32

const (
	Waiting  progress = iota // its handler has not been dispatched
	Handling                 // its handler has been, and the answer is open

	Detached  // a Stream continues the answer
	Outlived  // it does, and the handler has returned
	Finishing // the handler has returned: what it has not sent is being sent, unless that fails
	Completed // the whole answer has been sent
	Answered  // likewise, and the exchange is the loop's again, which may use it for another request
	Declined  // the loop has answered instead of the handler
	Unheard   // the stream has ended before its handler was dispatched

	Upgrading // Upgrade is sending its head
	Upgraded  // another handler speaks on the connection
	Hijacked  // the connection leaves the engine

	progresses
)

// follows has for each step the steps behind which it may come. The comments name who makes it. If
// its answer cannot be completed, an exchange stays where it is, and its connection or stream ends.
var follows = [progresses]uint32{
	Handling:  1 << Waiting,  // the loop, or the goroutine that ran the one before in a chain
	Detached:  1 << Handling, // Detached
	Outlived:  1 << Detached, // the end of the handler
	Finishing: 1 << Handling, // likewise
	Completed: 1 << Finishing,
	Answered:  1 << Completed,           // comesBack
	Declined:  1<<Waiting | 1<<Handling, // the loop, also if the pool has no room
	Unheard:   1 << Waiting,             // Ended
	Upgrading: 1 << Handling,            // Upgrade
	Upgraded:  1<<Upgrading | 1<<Handling,
	Hijacked:  1 << Handling, // Hijack
}

func (x *Exchange) Progress() progress { return progress(x.at.Load()) }

// Enter makes a step, and reports whether it may come behind the one before.
func (x *Exchange) Enter(to progress) bool {
	at := x.at.Load()
	return follows[to]&(1<<at) != 0 && x.at.CompareAndSwap(at, uint32(to))
}

// Over reports whether the handler has nothing more to write.
func (s progress) Over() bool { return Detached <= s && s <= Unheard }

// Taken reports whether the connection leaves HTTP.
func (s progress) Taken() bool { return s >= Upgrading }

// A Carrier carries an exchange in one version of HTTP: *http1.Stream, *http2.Stream. What net/http
// promises of an answer is decided above it, in response; a carrier only encodes it and sends it.
type Carrier interface {
	dispatch.Task // by the Exchange in it
	Base() *Exchange

	// These run on the handler's goroutine. What they send they send by Response.SendWhenRoom,
	// which waits where the handler may.

	// Snapshot encodes status and header of the answer as they are now.
	Snapshot()
	// Interim sends an informational answer with the header as it is now.
	Interim(status int) error
	// SendHead completes what Snapshot has begun, and sends it with what has been gathered of the
	// body. next comes behind it, and serves to find the type. last: nothing follows.
	SendHead(next []byte, last bool) error
	// SendData sends a piece of the body. last: it is the last, if not empty, and the trailers
	// follow.
	SendData(p []byte, last bool) error
	// SendFile sends n bytes of f from off on; f may be closed at once. CanSendFile says whether it
	// can, once the head has been sent.
	SendFile(f *os.File, off, n int64) error
	CanSendFile() bool
	// Coding is what a Transfer-Encoding of the handler means to the framing.
	Coding(values []string) Coding
	// OwnField looks at a field that concerns the connection, and reports whether it is left out.
	OwnField(name string, values []string) (skip bool)
	// HasTurn reports whether what is sent leaves at once, rather than behind other answers.
	HasTurn() bool
	// Outlive prepares the answer for a Stream, and Sink is by what that sends behind the head.
	Outlive() error
	Sink() Sink
	// Upgrade and Hijack take the connection over, where the version of HTTP has that.
	Upgrade(head []byte, h myriad.Handler) error
	Hijack() (net.Conn, *bufio.ReadWriter, error)

	// These may be called on any goroutine and never block.

	// Invite sends 100 Continue: myriad.ErrFull.
	Invite() error
	// Notify has the loop look at what the exchange asks for.
	Notify()
	// Fail ends the answer, which cannot be completed, so that the client notices.
	Fail()

	// These take the exchange back from its handler: it has made its last step, and is the
	// loop's. One of them is called, once.

	// ComesBack is called off the loop. It returns the next of a chain whose goroutine this is.
	ComesBack() dispatch.Task
	// KeptByLoop is called on the loop, behind an inline task.
	KeptByLoop()
	// Refuse is called on the loop, and answers instead of the handler.
	Refuse(status int, reason string) error
}

// A demand is what an exchange asks of its loop while its handler runs.
type demand uint32

const (
	DemandInput    demand = 1 << iota // the body has been read below its low mark
	DemandDeadline                    // ResponseController has set one, for the body or the answer
	demandWriteBy                     // for the answer
	DemandGoAway                      // HTTP/2: the connection ends behind its streams
)

func (x *Exchange) Demand(d demand) {
	x.demands.Or(uint32(d))
	x.Carrier.Notify()
}

// TakeDemands returns what the loop is asked to do. It has made the deadline of the answer the
// loop's already, if that has moved.
func (x *Exchange) TakeDemands() (d demand) {
	if x.demands.Load() != 0 {
		d = demand(x.demands.Swap(0))
		x.moveWriteBy(d)
	}
	return d
}

// Attach makes x the exchange of a carrier on a connection.
func (x *Exchange) Attach(c Carrier, k *Link) {
	x.Carrier, x.Lane, x.began = c, k.Lane, k.Lane.Server.clock.at(k.Lane.Loop.Now())
	x.Given.Ctx.Link = k
	x.Out.X, x.Out.Said = x, &saidNothing
}

// Dispatch has the handler run: as an inline task, or on the pool, with the others of this poll
// cycle. complete says that all of the body has come. On the loop.
func (x *Exchange) Dispatch(complete bool) {
	ln := x.Lane
	x.Enter(Handling)
	if complete && ln.Tasks.TryInline(x.Conn(), x.Carrier, x.Record()) {
		x.Inlined = true
		return
	}
	if !ln.Server.Load.begin() {
		x.Decline(503, fmt.Sprintf("%d requests are being served", ln.Server.Load.most))
		return
	}
	ln.Tasks.ToPool(x.Carrier)
}

// Record is what is known of the route; nil: nothing, or it makes no difference. On the loop.
func (x *Exchange) Record() *dispatch.Record {
	if x.Lane.Server.Dispatch != dispatch.Auto {
		return nil
	}
	if r := x.Lane.Routes.of(&x.Given.Request); r != nil {
		return &r.Record
	}
	return nil
}

// NoRoom answers a request for which the pool's queue has no room. On the loop.
func (s *Server) NoRoom(t dispatch.Task) {
	s.Load.end()
	t.(Carrier).Base().Decline(503,
		fmt.Sprintf("%d requests are waiting", OrDefault(s.Queue, workers.DefaultQueue)))
}

// Begin reports whether the handler is to run. It does not if its client has disconnected or, with
// HTTP/2, reset the stream. Else a client could make the server work for nothing, as fast as it can
// ask. It may be called twice.
func (x *Exchange) Begin() bool {
	x.Enter(Handling)
	return x.Given.Ctx.Begin()
}

// Do implements dispatch.Task: it calls the handler and completes the answer. It reports whether
// the handler has returned rather than panicked.
func (x *Exchange) Do() (returned bool) {
	defer x.over()
	if !x.Begin() {
		x.Given.Ctx.End()
		return false
	}
	if returned = x.callHandler(); !returned {
		return false
	}
	if x.Enter(Outlived) || !x.Enter(Finishing) {
		return true
	}
	if err := x.Out.finish(); err != nil {
		x.Carrier.Fail()
		return true
	}
	x.Enter(Completed)
	return true
}

// callHandler reports whether the handler has returned rather than panicked. Its context ends
// before its answer does, as with net/http: a client that has that whole may count on it.
func (x *Exchange) callHandler() (ok bool) {
	r := &x.Given.Request
	defer func() {
		driver.Unlabel() // the goroutine runs other handlers next
		if x.Given.Ctx.End(); ok {
			return
		}
		if v := recover(); v != nil && v != http.ErrAbortHandler {
			x.Lane.Server.Logf("http: panic serving %s: %v\n%s", r.RemoteAddr, v, debug.Stack())
		}
		x.Carrier.Fail()
	}()
	defer func() {
		if form := r.MultipartForm; form != nil {
			_ = form.RemoveAll() // its files are the handler's only while it runs
		}
	}()
	var w http.ResponseWriter = x.Given
	if x.Out.Framing == FramingStream {
		w = (*given2)(x.Given) // which has no Hijack
	}
	x.Lane.Server.HandlerOf(r).ServeHTTP(w, r)
	return true
}

// over is the end of the handler, also of one that has ended its goroutine.
func (x *Exchange) over() {
	if x.Given.Ctx.connGone {
		defer x.connGone()
	}
	if x.Progress() != Completed { // else nothing is left
		x.Out.drop()
	}
	if x.Body != nil {
		x.Body.Release()
	}
	switch {
	case x.Inlined:
	case x.Excused():
		x.Lane.Server.Tasks.Widen(-1)
	default:
		x.Lane.Server.Load.end()
	}
}

// Next implements dispatch.Task: it gives the exchange back to the loop, and returns the next one
// of a chain if that may follow.
func (x *Exchange) Next() dispatch.Task {
	return x.Carrier.ComesBack()
}

// Kept implements dispatch.Task: the loop goes on with the connection at once.
func (x *Exchange) Kept() {
	x.Complete()
	x.Carrier.KeptByLoop()
}

// Complete gives the exchange back to the loop, and reports whether that goes on with it. It does
// not if the answer cannot be completed, or the connection has a new owner.
func (x *Exchange) Complete() bool { return x.Enter(Answered) || x.Progress() == Outlived }

// Stream is what continues the answer, nil if nothing does.
func (x *Exchange) Stream() *Stream {
	if s := x.Progress(); s != Detached && s != Outlived {
		return nil
	}
	x.Out.Mu.Lock()
	defer x.Out.Mu.Unlock()
	return x.Out.Seldom.stream
}

// date is what the Date field says. That of an inline task is the date of the poll cycle in which
// its request came, a few milliseconds ago at most.
func (x *Exchange) date() string {
	if x.HasLoop() {
		return x.began.text
	}
	return x.Lane.Server.clock.at(x.Lane.Server.Engine.System().Now()).text
}

// Base implements Carrier.
func (x *Exchange) Base() *Exchange { return x }

func (x *Exchange) Conn() *myriad.Conn { return x.Given.Ctx.Link.C }

// Decline answers an exchange whose handler does not run. On the loop.
func (x *Exchange) Decline(status int, reason string) {
	x.Enter(Declined)
	if x.Given.Ctx.End(); x.Given.Ctx.connGone {
		defer x.connGone()
	}
	x.Body.Release()
	if err := x.Carrier.Refuse(status, reason); err != nil {
		x.Carrier.Fail() // a conn that takes no more needs no answer, but an end
	}
}

// A Refusal is an answer that the server gives itself.
type Refusal struct {
	Status     int
	Type, Body string // Content-Type and body
	RetryAfter string // that field; "": there is none
	NoStore    bool   // no cache may keep it, though its status would let it (RFC 9111 section 4.2.2)
}

// RefusalOf returns the answer with the status, in the words of net/http.
func RefusalOf(status int, reason string) Refusal {
	text := strconv.Itoa(status) + " " + http.StatusText(status)
	if reason != "" {
		text += ": " + reason
	}
	return Refusal{Status: status, Type: "text/plain; charset=utf-8", Body: text}
}

// Refusal returns the answer with the status to the request. 503 tells the client when to come
// back; an EventSource is told so by a stream, because it would give up. On the loop, once.
func (x *Exchange) Refusal(status int, reason string) Refusal {
	r := RefusalOf(status, reason)
	if status != http.StatusServiceUnavailable {
		return r
	}
	wait := x.Lane.Server.Retry.Wait(x.Lane.Loop.Now())
	r.RetryAfter = retryafter.Seconds(wait)
	if asked := &x.Given.Request; retryafter.IsEventSource(asked.Method, asked.Header["Accept"]) {
		r.Status, r.Type, r.NoStore = http.StatusOK, retryafter.ContentType, true
		r.Body = string(retryafter.AppendStream(nil, r.Body, wait))
	}
	return r
}

// LeavesPool is for a handler that has hijacked its connection: from now on it counts no more.
func (x *Exchange) LeavesPool() {
	if x.Excuse(); x.Inlined {
		return
	}
	x.Lane.Server.Load.end()
	x.Lane.Server.Tasks.Widen(1)
}

// awaitClient parks the goroutine of a handler until something has come from its client, or gone to
// it. Meanwhile the handler does not count.
func (x *Exchange) awaitClient(p driver.Parker) {
	st := x.Lane.Server
	if x.Inlined || x.Excused() || !st.Tasks.Widen(1) {
		p.Park()
		return
	}
	st.Load.end()
	p.Park()
	st.Tasks.Widen(-1)
	st.Load.GoOn()
}

// A Takeover is how a connection leaves HTTP: to another handler on the loop, or out of the engine.
type Takeover struct {
	Handler myriad.Handler                              // upgrade
	Done    func(nc net.Conn, unread []byte, err error) // hijack
	NetConn net.Conn                                    // what Hijack has returned
}

// Take begins a takeover, unless there is one.
func (x *Exchange) Take(t Takeover, to progress) error {
	x.Out.Mu.Lock()
	defer x.Out.Mu.Unlock()
	if !x.Enter(to) {
		return http.ErrHijacked
	}
	x.Out.more().Takeover = t
	return nil
}

// TakeBack undoes an upgrade of a connection that has gone, unless the new handler has been told
// already.
func (x *Exchange) TakeBack() bool {
	return x.EndTakeover().Handler != nil
}

// EndTakeover returns the takeover, if the new owner has not been told yet, and leaves it empty.
func (x *Exchange) EndTakeover() (t Takeover) {
	x.Out.Mu.Lock()
	defer x.Out.Mu.Unlock()
	if s := x.Out.Seldom; s != nil {
		t, s.Takeover = s.Takeover, Takeover{}
	}
	return t
}

// hijacked is the connection if it has been hijacked, or nil.
func (x *Exchange) hijacked() net.Conn {
	if x.Progress() != Hijacked {
		return nil
	}
	x.Out.Mu.Lock()
	defer x.Out.Mu.Unlock()
	return x.Out.Seldom.Takeover.NetConn
}

// takeoverLost is called when the connection is lost before the loop could give it away: the caller
// of the takeover gets the error.
func (x *Exchange) takeoverLost(c *myriad.Conn, err error) {
	switch t := x.EndTakeover(); {
	case t.Handler != nil:
		t.Handler.Opened(c)
		t.Handler.Closed(c, err)
	case t.Done != nil:
		t.Done(nil, nil, err)
	}
}

// Lose ends whatever the handler may be waiting for, because its connection or stream has gone.
// drop discards what waits to be sent.
func (x *Exchange) Lose(err error, end *LastState, drop func()) {
	if err == nil {
		err = myriad.ErrClosed
	}
	x.Out.Lose(err) // first: a goroutine woken by its body may write
	if x.Body != nil {
		x.Body.Fail(x.netError("read", err))
	}
	drop()
	if end != nil {
		x.Out.setLastState(end)
		end.left.Add(1)
	}
	if at := x.Progress(); x.Given.Ctx.LoseConn(at != Waiting && at != Declined) {
		x.Lane.Server.Conns.Add(1) // until the handler has ended
	} else {
		end.Release()
	}
	x.takeoverLost(x.Conn(), err)
	if s := x.Stream(); s != nil {
		s.Lost(err)
	}
}

// connGone is the end of a handler that its connection has not outlived.
func (x *Exchange) connGone() {
	defer x.Lane.Server.ConnGone()
	x.Out.lastState().Release()
}

// A LastState is the call of ConnState with StateClosed, which waits until no handler of the
// connection runs, as in net/http.
type LastState struct {
	k    *Link
	left atomic.Int32 // holders: those handlers, and the loop
}

func NewLastState(k *Link) *LastState {
	e := &LastState{k: k}
	e.left.Store(1)
	return e
}

// Release is called by the loop, and by each handler when it ends. A nil lastState does nothing.
func (e *LastState) Release() {
	if e != nil && e.left.Add(-1) == 0 {
		e.k.Lane.Server.report(e.k.seen(), http.StateClosed)
	}
}

func (x *Exchange) netError(op string, err error) error { return NetError(x.Conn(), op, err) }

// NetError is err as a net.Conn returns it: handlers, and frameworks, look for what is inside of a
// *net.OpError.
func NetError(c *myriad.Conn, op string, err error) error {
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

// SetWriteBy bounds the answer before its handler runs.
func (x *Exchange) SetWriteBy(by Moment) {
	x.WriteBy = by
	x.Out.WriteBy.Store(int64(by))
}

// TakeWriteBy makes the deadline of the answer the loop's if it has moved. On the loop.
func (x *Exchange) TakeWriteBy() {
	x.moveWriteBy(demand(x.demands.And(^uint32(demandWriteBy))))
}

func (x *Exchange) moveWriteBy(d demand) {
	if d&demandWriteBy != 0 {
		x.WriteBy, x.Looked = Moment(x.Out.WriteBy.Load()), false
	}
}

// keptFields is how many fields a header may have had whose map is kept: maps do not shrink.
const keptFields = 64

// Reusable reports whether nothing else refers to x: neither what was made for this request, by the
// server or at a handler's wish, nor the engine.
func (x *Exchange) Reusable() bool {
	return x.Progress() == Answered && !x.Spent() &&
		x.Out.Seldom == nil && x.Out.lost == nil && x.Out.failed == nil && x.Body == nil
}

func Emptied(h http.Header) http.Header {
	switch n := len(h); {
	case n > keptFields:
		return nil
	case n > 0:
		clear(h)
	}
	return h
}

// ParseTarget fills in the exchange's URL. The usual path without escapes is taken apart here.
func (x *Exchange) ParseTarget(target string, head *h1.Head) (*url.URL, error) {
	if head.Form == h1.Origin && PlainTarget(target) {
		path, query, has := strings.Cut(target, "?")
		u := &x.Given.URL
		u.Path, u.RawQuery, u.ForceQuery = path, query, has && query == ""
		return u, nil
	}
	if head.Form == h1.Authority { // CONNECT
		u, err := url.ParseRequestURI("http://" + target)
		if err == nil {
			u.Scheme = ""
		}
		return u, err
	}
	return url.ParseRequestURI(target)
}

// PlainTarget reports whether url.ParseRequestURI would find nothing in target but a path and a
// query, each as written.
func PlainTarget(target string) bool {
	if strings.HasPrefix(target, "//") {
		return false
	}
	for i := 0; i < len(target); i++ {
		switch c := target[i]; {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9':
		case c == '/' || c == '-' || c == '_' || c == '.' || c == '~':
		case c == '?':
			return plainQuery(target[i:])
		default:
			return false
		}
	}
	return true
}

func plainQuery(q string) bool {
	for i := 0; i < len(q); i++ {
		if c := q[i]; c <= ' ' || c == '#' || c >= 0x7f {
			return false
		}
	}
	return true
}

// AnnouncedTrailer makes the trailer's keys known before it comes, as net/http does, but for those
// of framing. It takes maxFields at most: a trailer has no more fields, and the map of a list of a
// megabyte takes thirteen.
func AnnouncedTrailer(h http.Header) http.Header {
	names, ok := h["Trailer"]
	if !ok {
		return nil
	}
	delete(h, "Trailer")
	trailer := http.Header{}
	for _, list := range names {
		for name := range strings.SplitSeq(list, ",") {
			switch name = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)); name {
			case "", "Content-Length", "Trailer", "Transfer-Encoding":
			default:
				if len(trailer) < MaxFields {
					trailer[name] = nil
				}
			}
		}
	}
	if len(trailer) == 0 {
		return nil
	}
	return trailer
}
