package web

import (
	"fmt"
	"net/http"
	"path"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// A response is what the http.ResponseWriter of an exchange does. The handler's goroutine owns it,
// except for what mu guards. response_head.go has the head's part of it, response_body.go the
// body's.
type response struct {
	x      *exchange
	status int
	head   headState
	// the first bytes of the body, beside the head, from snapshot until the head is sent; its
	// capacity says how many fit
	near []byte
	// bytes of the body that have not been given to the carrier, up to bodyBuffer, if they are not
	// in near
	pending *buf.Block
	extent  extent // says what length is
	length  int64
	written int64
	said    *said        // nil: nothing
	writeBy atomic.Int64 // a moment: until when it may be sent. ResponseController may move it
	failed  error        // what the last send failed with: nothing may follow

	framing framing
	noBody  bool // HEAD
	gotType bool // the handler set Content-Type, or forbade sniffing

	mu     sync.Mutex
	lost   error   // guarded by mu: why nothing can be sent any more
	seldom *seldom // guarded by mu; nil until it is needed
}

// A headState is how far the head of an answer is.
type headState uint8

const (
	headOpen  headState = iota
	headFixed           // by WriteHeader
	headSent
)

// An extent is what is known of the length of an answer's body.
type extent uint8

const (
	extentOpen     extent = iota // nothing: the server may find it out
	extentWithheld               // nothing: the handler has set a Content-Length of no use
	extentDeclared               // by the handler
	extentFound                  // by the server: the answer is complete
)

// known reports whether the length is.
func (e extent) known() bool { return e >= extentDeclared }

// A framing is what a version of HTTP lets an answer do beside sending its body.
type framing uint8

const (
	framingChunks framing = iota // HTTP/1.1: trailers need chunks, and so no Content-Length
	framingPlain                 // HTTP/1.0: there are neither interim answers nor trailers
	framingStream                // HTTP/2: trailers may follow a body with a Content-Length
)

// said is what few handlers say, most of it in fields of the head.
type said struct {
	trailers []string // announced
	trails   bool     // something was announced, if only names that no trailer may have
	// the Connection field, which the server may have to replace; nil: there is none, not even one
	// without a value
	connection []string
	coding     coding // Transfer-Encoding
	dated      bool   // Date
	duplex     bool   // EnableFullDuplex: the answer does not wait for the end of the request's body
}

var saidNothing said

// words is what the handler has said, to be read.
func (w *response) words() *said {
	if w.said == nil {
		return &saidNothing
	}
	return w.said
}

// tell is what the handler says, to be written.
func (w *response) tell() *said {
	if w.said == nil {
		w.said = new(said)
	}
	return w.said
}

// seldom is what few exchanges need.
type seldom struct {
	room     driver.Parker // of the writer that waits for room
	interim  driver.Parker // of the reader that waits for room to send 100 Continue
	stream   *Stream       // continues the answer, if that is detached
	takeover takeover      // the new owner of the connection, if it is taken
	last     *lastState    // of the connection, if it has gone; nil: no state function
}

func forAnswer(s *seldom) *driver.Parker  { return &s.room }
func forInterim(s *seldom) *driver.Parker { return &s.interim }

// more gives the response what few have. mu is held.
func (w *response) more() *seldom {
	if w.seldom == nil {
		w.seldom = new(seldom)
	}
	return w.seldom
}

// A coding is what a handler's Transfer-Encoding means to the framing, which is the server's
// business.
type coding uint8

const (
	codingNone     coding = iota
	codingChunked         // what would be chosen anyway
	codingIdentity        // the body ends with the connection
	codingOther           // sent as it is, inside chunks
)

// WriteHeader fixes the head. Informational answers (1xx) are sent at once. What net/http logs or
// panics with is said in its words, because programs look for them.
func (w *response) WriteHeader(status int) {
	switch {
	case w.x.ending() == upgraded || w.x.ending() == detached:
		// Middleware that records the status calls it behind the head that has been sent.
	case w.x.ending() == hijacked:
		w.x.lane.s.logf("http: response.WriteHeader on hijacked connection from %s", caller())
	case w.head != headOpen:
		w.x.lane.s.logSuperfluous()
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	case status < 200 && (status != http.StatusSwitchingProtocols || w.framing == framingStream):
		w.informational(status)
	default:
		w.refuseContinue()
		w.status = status
		w.head = headFixed
		w.x.carrier.snapshot()
	}
}

func (w *response) setLastState(s *lastState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.more().last = s
}

func (w *response) lastState() *lastState {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seldom == nil {
		return nil
	}
	return w.seldom.last
}

func (s *Server) logSuperfluous() {
	s.logf("http: superfluous response.WriteHeader call from %s", caller())
}

// caller names the function that has called into the server, past net/http's helpers.
func caller() string {
	pc := make([]uintptr, 16)
	frames := runtime.CallersFrames(pc[:runtime.Callers(2, pc)])
	for {
		f, more := frames.Next()
		if !more || !isOurs(f.Function) && !strings.HasPrefix(f.Function, "net/http.") {
			return fmt.Sprintf("%s (%s:%d)", f.Function, path.Base(f.File), f.Line)
		}
	}
}

func isOurs(function string) bool {
	name, ok := strings.CutPrefix(function, "github.com/myriad-go/myriad/web.")
	return ok && (strings.HasPrefix(name, "(*giving)") || strings.HasPrefix(name, "(*given)") ||
		strings.HasPrefix(name, "(*given2)") || strings.HasPrefix(name, "(*response)") ||
		strings.HasPrefix(name, "(*Server).logSuperfluous") || strings.HasPrefix(name, "writeBody"))
}

func (w *response) informational(status int) {
	if w.framing == framingPlain {
		return // RFC 9110 section 15.2: not to an HTTP/1.0 client
	}
	if status == http.StatusContinue {
		w.refuseContinue() // once is enough
	}
	_ = w.x.carrier.interim(status)
	w.x.HandOff() // as flush does
}

// sendContinue tells the client to send the body it has announced, unless an answer has begun. It
// may run beside the handler, on a goroutine that reads the body.
func (w *response) sendContinue() {
	if !w.x.body.mayContinue() {
		return
	}
	for w.tryContinue() == myriad.ErrFull { // with answers to earlier requests
		if !w.x.HandOff() {
			return
		}
		if w.waitForRoom(forInterim) != nil {
			w.wake() // another reader
			return   // a broken connection shows in Read
		}
	}
}

func (w *response) tryContinue() (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.x.body.mayContinue() {
		err = w.x.carrier.invite()
	}
	if err != myriad.ErrFull {
		w.settleContinue()
	}
	return err
}

// refuseContinue keeps an interim answer from coming behind the final one.
func (w *response) refuseContinue() {
	if w.x.body.mayContinue() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.settleContinue()
	}
}

// settleContinue lets readers go on that wait to send it. mu is held.
func (w *response) settleContinue() {
	w.x.body.settleContinue()
	if w.seldom != nil {
		unpark(w.seldom.interim)
	}
}

// flush sends what has been gathered.
func (w *response) flush() error {
	if w.x.ending() != open {
		return http.ErrHijacked
	}
	if w.head == headOpen {
		w.WriteHeader(http.StatusOK)
	}
	var err error
	switch {
	case w.head != headSent:
		err = w.sendHead(nil, false)
	case w.pending != nil:
		err = w.sendPending(false)
	default:
		if err = w.lostErr(); err != nil { // the queue may still hold something
			err = w.x.netError("write", err)
		}
	}
	w.x.HandOff() // the loop sends nothing before its task returns, and the handler may go on for long
	return err
}
