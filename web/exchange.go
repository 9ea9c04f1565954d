package web

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
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

// complete says that the answer is. It is the handler's last. Behind an inline task the loop looks
// by itself.
func (x *exchange) complete() {
	if !x.inline() {
		x.want(wantFinish)
	}
}

// date is what the Date field says. That of an inline task is the date of the poll cycle in which
// its request came, a few milliseconds ago at most.
func (x *exchange) date() string {
	if x.HasLoop() {
		return x.began.text
	}
	return x.lane.st.clock.at(x.lane.st.engine.System().Now()).text
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

// run calls the handler and completes the answer. It reports whether the handler has returned
// rather than panicked.
func (x *exchange) run() (returned bool) {
	defer x.over()
	if returned = x.callHandler(); returned {
		x.finish()
	}
	return returned
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

// generalOptions answers "OPTIONS *" as net/http does.
type generalOptions struct{}

func (generalOptions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", "0")
	if r.ContentLength == 0 {
		return
	}
	const most = 4 << 10 // of unread input
	_, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, most))
	if _, more := errors.AsType[*http.MaxBytesError](err); more || r.ContentLength > most {
		w.Header().Set("Connection", "close")
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

// netError is err as a net.Conn returns it: handlers, and frameworks, look for what is inside of a
// *net.OpError.
func (x *exchange) netError(op string, err error) error { return netError(x.conn(), op, err) }

func (x *exchange) conn() *myriad.Conn { return x.given.ctx.link.c }

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

// stream is what continues the answer, nil if nothing does.
func (x *exchange) stream() *Stream {
	if x.ending() != detached {
		return nil
	}
	x.out.mu.Lock()
	defer x.out.mu.Unlock()
	return x.out.seldom.stream
}
