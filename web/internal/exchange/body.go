package exchange

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/flow"
)

// maxBodyBuffer is how much of a body waits to be read before the loop stops reading the
// connection; a read that was under way may add one read buffer.
const MaxBodyBuffer = 64 << 10

// A Body is a request's body: fed by the loop, read by the handler, which waits for it where it
// runs. Its bytes are in an Inbox. The body knows besides in which words of net/http it fails, and
// how much may be discarded. A request without one has a nil body, which is complete; the methods
// that the loop calls at any time know that.
type Body struct {
	x      *Exchange
	Length int64 // never changes; -1: it is not known
	In     flow.Inbox
	expect atomic.Uint32 // an expectation

	mu      sync.Mutex // taken before that of the Inbox
	Closed  bool       // the handler wants no more
	reading reading
	then    error  // what a Read fails with after the first that has failed
	ReadBy  Moment // when it must have come
	total   int64  // bytes that have come
	most    int64  // how many may come, as they are not read; 0: they are, or a window bounds them
	trailer http.Header
	away    driver.Parker // of the goroutine in awaitClient, nil without one; others only park
	parker  driver.Parker // of a goroutine that has waited, for the next one
}

// A reading is how far a body has been read.
type reading uint8

const (
	readNothing reading = iota
	readSome
	readToEnd  // a Read has returned io.EOF
	readFailed // a Read has returned the error of the Inbox
	readLate   // a Read has failed for its deadline, so that every other does, whatever comes
)

// An expectation is whether the client waits for 100 Continue.
type expectation = uint32

const (
	expectNothing  expectation = iota
	expectContinue             // it may not send the body before, or may have sent it already
	expectSettled              // it did, and has been answered
)

func (b *Body) Init(x *Exchange, length int64, expects bool) {
	b.x, b.Length = x, length
	if expects {
		b.expect.Store(expectContinue)
	}
}

// windowed reports whether the peer sends no more than it is granted by credit. Else the loop stops
// reading.
func (b *Body) windowed() bool { return b.x.Out.Framing == FramingStream }

// expects reports whether the client had asked for 100 Continue.
func (b *Body) expects() bool { return b.expect.Load() != expectNothing }

// mayContinue reports whether 100 Continue may be sent.
func (b *Body) mayContinue() bool { return b != nil && b.expect.Load() == expectContinue }

// settleContinue has no 100 Continue be sent any more. The response's mu is held.
func (b *Body) settleContinue() {
	if b.mayContinue() {
		b.expect.Store(expectSettled)
	}
}

// Read implements io.Reader. It waits for bytes, for the end, or for the connection to fail.
func (b *Body) Read(p []byte) (int, error) {
	if b.expects() {
		b.invite()
	}
	n, tell, err := b.readOrWait(p)
	if tell {
		b.x.Demand(DemandInput)
	}
	if !b.windowed() && saysGone(err) { // a stream says so itself
		b.x.Given.Ctx.Depart()
	}
	return n, err
}

func (b *Body) readOrWait(p []byte) (n int, tell bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(p) == 0 && !b.Closed && !b.atEnd() {
		return 0, false, nil
	}
	for {
		var more bool
		n, more, err = b.take(p)
		if tell = tell || more; n > 0 || err != nil {
			return n, tell, err
		}
		if !b.x.HandOff() {
			return 0, tell, myriad.ErrOnLoop
		}
		b.wait(false)
	}
}

// take reads what is there, and tells of the end with the last of it, as net/http does. mu is held.
func (b *Body) take(p []byte) (n int, tell bool, err error) {
	switch {
	case b.Closed:
		return 0, false, http.ErrBodyReadAfterClose
	case b.reading == readLate:
		return 0, false, b.then
	case b.reading == readNothing:
		b.reading = readSome
	}
	n, tell, err = b.In.Read(p)
	return n, tell, b.failure(err)
}

// atEnd reports whether all has come and been read.
func (b *Body) atEnd() bool {
	in := b.In.State()
	return in.Err == io.EOF && in.Unread == 0
}

// invite sends 100 Continue once to a client that expects it, as net/http does: also if a part of
// the body has come, and for a Read of zero bytes.
func (b *Body) invite() {
	b.mu.Lock()
	closed := b.Closed
	b.mu.Unlock()
	if !closed {
		b.x.Out.sendContinue()
	}
}

// SawEnd shows the trailer to the handler, which has read everything before it.
func (b *Body) SawEnd() {
	b.reading = readToEnd
	if b.trailer == nil {
		return
	}
	req := &b.x.Given.Request
	if req.Trailer == nil && req.ProtoMajor < 2 {
		req.Trailer = http.Header{}
	}
	for name, values := range b.trailer {
		// As with net/http, HTTP/2 has those that the head has announced.
		if _, announced := req.Trailer[name]; announced || req.ProtoMajor < 2 {
			req.Trailer[name] = values
		}
	}
	b.trailer = nil
}

// wait lets the lock go until something has changed, or only until the end. A body may be read on
// one goroutine and left on another, so that several may wait.
func (b *Body) wait(forEnd bool) {
	p := b.parker
	if b.parker = nil; p == nil {
		p = b.x.Lane.Server.Engine.System().NewParker()
	}
	if forEnd {
		b.In.WaitEnd(p, b.park)
	} else {
		b.In.Wait(p, b.park)
	}
	b.parker = p
}

// Awaited reports whether a Read waits for the client.
func (b *Body) Awaited() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.away != nil
}

func (b *Body) park(p driver.Parker) {
	if b.away != nil { // the handler already counts as waiting
		b.mu.Unlock()
		p.Park()
		b.mu.Lock()
		return
	}
	b.away = p
	b.mu.Unlock()
	b.x.awaitClient(p)
	b.mu.Lock()
	b.away = nil
}

// Close says that the handler wants no more. The loop reads the rest away after the answer.
func (b *Body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Closed = true
	b.In.Wake()
	return nil
}

// Add takes decoded bytes from the loop, which may be the last. Too many of them fail the body.
func (b *Body) Add(p []byte, last bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total += int64(len(p))
	if limit := b.x.Lane.Server.MaxBodyBytes; limit > 0 && b.total > limit {
		err := &http.MaxBytesError{Limit: limit}
		b.failLocked(err, err)
		b.In.Put(p, last) // which drops them
		return err
	}
	if b.most > 0 && b.total > b.most {
		return errTooMuchLeft
	}
	b.In.Put(p, last)
	return nil
}

// End is the orderly end of a chunked body.
func (b *Body) End(trailer http.Header) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trailer = trailer
	b.In.Put(nil, true)
}

// Release throws away what is there when the handler is done, and what still comes, up to
// maxDiscard.
func (b *Body) Release() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.releaseLocked()
}

func (b *Body) releaseLocked() {
	b.Closed = true
	if b.most == 0 && !b.windowed() {
		b.most = b.total + MaxDiscard
	}
	b.In.Discard()
}

// Unread takes what has come of the body and was not read, for the new owner of the connection.
// From then on nothing can be read here.
func (b *Body) Unread() []byte {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var rest buf.Chain
	b.In.Move(&rest)
	defer rest.Release()
	return rest.AppendTo(nil)
}

// AwaitEnd discards the rest of the body, up to maxDiscard and for stopTimeout at most. So a client
// that sends its whole request first is not interrupted, and the head of the answer can say whether
// the connection stays. On the handler's goroutine.
func (b *Body) AwaitEnd() {
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.In.State()
	if in.Err != nil || b.reading == readLate || b.expects() || b.isLong() || !b.x.HandOff() {
		return
	}
	b.releaseLocked()
	if in.Late {
		return
	}
	b.ReadBy = b.ReadBy.OrEarlier(b.x.Lane.Server.Now().After(StopTimeout))
	b.x.Demand(DemandInput | DemandDeadline)
	for ; in.Err == nil && !in.Late; in = b.In.State() {
		b.wait(true)
	}
}

// BlocksReuse reports whether the connection cannot be kept: the client may never send the body, or
// too much of it is still to come when the handler reads no more. Of a body of unknown length, that
// is all that has not come. over: the handler has returned. duplex: it has said that it reads on
// after the head of its answer. As with net/http, a body whose client expects 100 Continue must
// have been read to its end.
func (b *Body) BlocksReuse(over, duplex bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch in := b.In.State(); {
	case b.expects():
		return b.reading != readToEnd
	case b.reading == readLate:
		return true
	case in.Err == io.EOF:
		return false
	case in.Err != nil || in.Late:
		return true
	case !over && (b.reading != readNothing || duplex):
		return b.Closed && b.isLong()
	case b.Length < 0 && !duplex:
		return true
	}
	return b.isLong()
}

// isLong reports whether more than maxDiscard of the body is known to be still to come. mu is held.
func (b *Body) isLong() bool { return b.Length-b.total > MaxDiscard }

// Got reports whether its handler has got all it wants of it.
func (b *Body) Got() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reading == readToEnd || b.Closed
}

// HalfRead reports whether the handler has begun to read the body and not come to its end.
func (b *Body) HalfRead() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reading != readNothing && b.reading != readToEnd
}

// Complete reports whether all of the body has come from the connection.
func (b *Body) Complete() bool { return b == nil || b.In.Complete() }

// Full reports whether the loop should stop reading.
func (b *Body) Full() bool { return b.In.State().Full }

var errTooMuchLeft = errors.New("too much of the body was left unread")

// setReadBy moves the deadline of the body. Reads go on, also if it had passed. On the handler's
// goroutine.
func (b *Body) setReadBy(by Moment) {
	b.mu.Lock()
	b.ReadBy = by
	b.In.Interrupt(nil)
	b.mu.Unlock()
	b.x.Demand(DemandDeadline)
}

// Bound is until when the loop is to wait for the body.
func (b *Body) Bound() Moment {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.In.State().Late {
		return Never
	}
	return b.ReadBy
}

// Expire has reads fail that find nothing, if the time of the body has just passed, and reports
// that.
func (b *Body) Expire(now Moment) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.In.State().Late || !b.ReadBy.Passed(now) {
		return false
	}
	b.In.Interrupt(os.ErrDeadlineExceeded)
	return true
}

// IsLate reports whether the time of the body has passed before it has come, and has not been moved
// since.
func (b *Body) IsLate() bool { return b != nil && b.In.State().Late }

var (
	ErrTrailerEOF  = errors.New("http: unexpected EOF reading trailer")
	ErrTrailerLong = errors.New("http: suspiciously long trailer after chunked body")
	ErrTrailerCut  = errors.New(ErrTrailerLong.Error()) // so it is called there, too
)

// Fail is an end without order. Every Read that finds nothing more returns err.
func (b *Body) Fail(err error) { b.FailThen(err, err) }

// FailThen has the first such Read return err, and the others then.
func (b *Body) FailThen(err, then error) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failLocked(err, then)
}

func (b *Body) failLocked(err, then error) {
	if b.In.State().Err == nil && b.reading != readLate {
		b.then = then
		b.In.Fail(err)
	}
}

// failure is what a Read fails with for which the Inbox has err. mu is held.
func (b *Body) failure(err error) error {
	switch err {
	case nil:
		return nil
	case io.EOF:
		b.SawEnd()
		return err
	case flow.ErrDiscarded:
		return b.afterMove()
	case os.ErrDeadlineExceeded:
		return b.tooLate()
	}
	if b.reading == readFailed {
		return b.then
	}
	b.reading = readFailed
	return err
}

// afterMove is what a Read fails with when the connection has a new owner.
func (b *Body) afterMove() error {
	if b.reading == readToEnd {
		return io.EOF
	}
	return http.ErrHijacked
}

// tooLate is what a Read fails with for its deadline. As with net/http, a reader of chunks does not
// continue after it, and neither does one of HTTP/2.
func (b *Body) tooLate() error {
	err := b.x.netError("read", os.ErrDeadlineExceeded)
	if b.Length < 0 || b.windowed() {
		b.reading, b.then = readLate, err
	}
	if b.windowed() {
		b.In.Fail(err) // what still comes is dropped
	}
	return err
}

// saysGone reports whether a Read that fails with err tells its handler that its connection is as
// good as lost, as with net/http.
func saysGone(err error) bool {
	return err == io.ErrUnexpectedEOF || err == ErrTrailerEOF || err == ErrTrailerCut ||
		errors.Is(err, os.ErrDeadlineExceeded)
}
