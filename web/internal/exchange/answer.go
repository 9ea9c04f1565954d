package exchange

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// A Response is what the http.ResponseWriter of an exchange does. The handler's goroutine owns it,
// except for what mu guards.
type Response struct {
	X      *Exchange
	Status int
	Head   headState
	// the first bytes of the body, beside the head, from snapshot until the head is sent; its
	// capacity says how many fit
	Near []byte
	// bytes of the body that have not been given to the carrier, up to bodyBuffer, if they are not
	// in near
	pending *buf.Block
	Extent  extent // says what length is
	length  int64
	Written int64
	Said    *said        // to be read; Tell is to be written to
	WriteBy atomic.Int64 // a moment: until when it may be sent. ResponseController may move it
	failed  error        // what the last send failed with: nothing may follow

	Framing framing
	NoBody  bool // HEAD
	gotType bool // the handler set Content-Type, or forbade sniffing

	Mu     sync.Mutex
	lost   error   // guarded by mu: why nothing can be sent any more
	Seldom *seldom // guarded by mu; nil until it is needed
}

// A headState is how far the head of an answer is.
type headState uint8

const (
	HeadOpen  headState = iota
	headFixed           // by WriteHeader
	HeadSent
)

// An extent is what is known of the length of an answer's body.
type extent uint8

const (
	extentOpen     extent = iota // nothing: the server may find it out
	extentWithheld               // nothing: the handler has set a Content-Length of no use
	extentDeclared               // by the handler
	extentFound                  // by the server: the answer is complete
)

// Known reports whether the length is.
func (e extent) Known() bool { return e >= extentDeclared }

// A framing is what a version of HTTP lets an answer do beside sending its body.
type framing uint8

const (
	framingChunks framing = iota // HTTP/1.1: trailers need chunks, and so no Content-Length
	FramingPlain                 // HTTP/1.0: there are neither interim answers nor trailers
	FramingStream                // HTTP/2: trailers may follow a body with a Content-Length
)

// said is what few handlers say, most of it in fields of the head.
type said struct {
	trailers []string // announced
	trails   bool     // something was announced, if only names that no trailer may have
	// the Connection field, which the server may have to replace; nil: there is none, not even one
	// without a value
	Connection []string
	Coding     Coding // Transfer-Encoding
	dated      bool   // Date
	Duplex     bool   // EnableFullDuplex: the answer does not wait for the end of the request's body
}

// saidNothing is what most handlers say. Nothing is written to it.
var saidNothing said

// Tell is what the handler says, to be written.
func (w *Response) Tell() *said {
	if w.Said == &saidNothing {
		w.Said = new(said)
	}
	return w.Said
}

// seldom is what few exchanges need.
type seldom struct {
	Room     driver.Parker // of the writer that waits for room
	interim  driver.Parker // of the reader that waits for room to send 100 Continue
	stream   *Stream       // continues the answer, if that is detached
	Takeover Takeover      // the new owner of the connection, if it is taken
	last     *LastState    // of the connection, if it has gone; nil: no state function
}

func ForAnswer(s *seldom) *driver.Parker { return &s.Room }

func forInterim(s *seldom) *driver.Parker { return &s.interim }

// more gives the response what few have. mu is held.
func (w *Response) more() *seldom {
	if w.Seldom == nil {
		w.Seldom = new(seldom)
	}
	return w.Seldom
}

// A Coding is what a handler's Transfer-Encoding means to the framing, which is the server's
// business.
type Coding uint8

const (
	CodingNone     Coding = iota
	CodingChunked         // what would be chosen anyway
	CodingIdentity        // the body ends with the connection
	CodingOther           // sent as it is, inside chunks
)

// writeHeader fixes the head. Informational answers (1xx) are sent at once. What net/http logs or
// panics with is said in its words, because programs look for them.
func (w *Response) writeHeader(status int) {
	switch at := w.X.Progress(); {
	case at == Hijacked:
		w.X.Lane.Server.Logf("http: response.WriteHeader on hijacked connection from %s", caller())
	case at == Detached || at.Taken():
		// Middleware that records the status calls it behind the head that has been sent.
	case w.Head != HeadOpen:
		w.X.Lane.Server.logSuperfluous()
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	case status < 200 && (status != http.StatusSwitchingProtocols || w.Framing == FramingStream):
		w.informational(status)
	default:
		w.fix(status)
	}
}

// fix fixes the head of the answer itself, with the header as it is now.
func (w *Response) fix(status int) {
	w.RefuseContinue()
	w.Status, w.Head = status, headFixed
	w.X.Carrier.Snapshot()
}

func (w *Response) setLastState(s *LastState) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	w.more().last = s
}

func (w *Response) lastState() *LastState {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if w.Seldom == nil {
		return nil
	}
	return w.Seldom.last
}

func (s *Server) logSuperfluous() {
	s.Logf("http: superfluous response.WriteHeader call from %s", caller())
}

// ourPath is what the names of functions begin with that are not the program's.
const ourPath = "github.com/myriad-go/myriad/web/internal/"

// caller names the function that has called into the server, past net/http's helpers.
func caller() string {
	pc := make([]uintptr, 16)
	frames := runtime.CallersFrames(pc[:runtime.Callers(2, pc)])
	for {
		f, more := frames.Next()
		if !more || !strings.HasPrefix(f.Function, ourPath) && !strings.HasPrefix(f.Function, "net/http.") {
			return fmt.Sprintf("%s (%s:%d)", f.Function, path.Base(f.File), f.Line)
		}
	}
}

func (w *Response) informational(status int) {
	if w.Framing == FramingPlain {
		return // RFC 9110 section 15.2: not to an HTTP/1.0 client
	}
	if status == http.StatusContinue {
		w.RefuseContinue() // once is enough
	}
	_ = w.X.Carrier.Interim(status)
	w.X.HandOff() // as flush does
}

// sendContinue tells the client to send the body it has announced, unless an answer has begun. It
// may run beside the handler, on a goroutine that reads the body.
func (w *Response) sendContinue() {
	if !w.X.Body.mayContinue() {
		return
	}
	for w.tryContinue() == myriad.ErrFull { // with answers to earlier requests
		if !w.X.HandOff() {
			return
		}
		if w.WaitForRoom(forInterim) != nil {
			w.Wake() // another reader
			return   // a broken connection shows in Read
		}
	}
}

func (w *Response) tryContinue() (err error) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if w.X.Body.mayContinue() {
		err = w.X.Carrier.Invite()
	}
	if err != myriad.ErrFull {
		w.settleContinue()
	}
	return err
}

// RefuseContinue keeps an interim answer from coming behind the final one.
func (w *Response) RefuseContinue() {
	if b := w.X.Body; b != nil && b.mayContinue() {
		w.Mu.Lock()
		defer w.Mu.Unlock()
		w.settleContinue()
	}
}

// settleContinue lets readers go on that wait to send it. mu is held.
func (w *Response) settleContinue() {
	w.X.Body.settleContinue()
	if w.Seldom != nil {
		unpark(w.Seldom.interim)
	}
}

// Flush sends what has been gathered.
func (w *Response) Flush() error {
	if w.X.Progress() != Handling {
		return http.ErrHijacked
	}
	if w.Head == HeadOpen {
		w.fix(http.StatusOK)
	}
	var err error
	switch {
	case w.Head != HeadSent:
		err = w.SendHead(nil, false)
	case w.pending != nil:
		err = w.sendPending(false)
	default:
		if err = w.LostErr(); err != nil { // the queue may still hold something
			err = w.X.netError("write", err)
		}
	}
	w.X.HandOff() // the loop sends nothing before its task returns, and the handler may go on for long
	return err
}

const (
	// fewNames is how many fields a usual answer has at most.
	fewNames = 12
)

// usualNames are the fields that most answers have, and no others, in order: to look them up costs
// less than to iterate over the map.
var usualNames = [...]string{"Content-Length", "Content-Type"}

// usualFields are the values of usualNames.
type usualFields [len(usualNames)]struct {
	values []string
	set    bool
}

// A FieldCoder appends fields in the words of a version of HTTP.
type FieldCoder struct {
	Field  func(p []byte, name, value string) []byte
	Length func(p []byte, n int64) []byte // Content-Length
}

// Header is what the handler has set, nil if that is nothing.
func (w *Response) Header() http.Header { return w.X.Given.header }

// AppendHeader appends the header's fields as they are now, for a carrier's snapshot: later changes
// to the map mean trailers only. It takes in what they say of the answer's framing.
func (w *Response) AppendHeader(p []byte, code *FieldCoder) []byte {
	if usual, only := w.usual(); only {
		for i := range usual {
			if f := &usual[i]; f.set {
				p = w.appendOwn(p, code, usualNames[i], f.values)
			}
		}
		return p
	}
	header := w.Header()
	w.announce(header["Trailer"])
	if values, ok := header["Transfer-Encoding"]; ok {
		w.Tell().Coding = w.X.Carrier.Coding(values)
	}
	var few [fewNames]string
	for _, name := range w.names(few[:0]) {
		p = w.appendOwn(p, code, name, header[name])
	}
	return p
}

// AppendInterim appends the header's fields for an informational answer.
func (w *Response) AppendInterim(p []byte, code *FieldCoder) []byte {
	header := w.Header()
	for _, name := range w.names(nil) {
		if name != "Content-Length" && name != "Transfer-Encoding" {
			p = code.Append(p, name, header[name])
		}
	}
	return p
}

// usual finds those of the header's fields that are usual, and reports whether there are no others.
// It does not look for more than there are.
func (w *Response) usual() (found usualFields, only bool) {
	header := w.Header()
	left := len(header)
	for i := len(usualNames) - 1; i >= 0 && 0 < left && left <= i+1; i-- {
		if values, ok := header[usualNames[i]]; ok {
			found[i].values, found[i].set = values, true
			left--
		}
	}
	return found, left == 0
}

// names appends the header's keys to dst, in order, so that the same answer has the same bytes.
func (w *Response) names(dst []string) []string {
	for name := range w.Header() {
		dst = append(dst, name)
	}
	if len(dst) > 1 {
		slices.Sort(dst)
	}
	return dst
}

// appendOwn appends a field of the handler's, unless that says how the answer is framed and the
// server finds other words for it.
func (w *Response) appendOwn(p []byte, code *FieldCoder, name string, values []string) []byte {
	if w.special(name, values) {
		return p
	}
	return code.Append(p, name, values)
}

func (code *FieldCoder) Append(p []byte, name string, values []string) []byte {
	for _, v := range values {
		p = code.Field(p, name, v)
	}
	return p
}

// special handles the fields that say how the answer is framed, and reports whether the field is
// not to be copied.
func (w *Response) special(name string, values []string) bool {
	switch name {
	case "Content-Length":
		return w.declareLength(values)
	case "Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Connection", "Upgrade":
		return w.X.Carrier.OwnField(name, values)
	case "Date":
		w.Tell().dated = true
	case "Content-Type":
		w.gotType = true
		// it would describe a body that is not there (RFC 9110 section 15.4.5)
		return w.Status == http.StatusNotModified
	case "Content-Encoding":
		w.gotType = w.gotType || len(values) > 0 && values[0] != ""
	}
	return strings.HasPrefix(name, http.TrailerPrefix)
}

// declareLength takes the handler's Content-Length in. A key without a value keeps the server from
// finding one out. The field is copied as the handler wrote it.
func (w *Response) declareLength(values []string) (skip bool) {
	w.Extent = extentWithheld
	if len(values) == 0 || values[0] == "" {
		return true
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	switch {
	case err != nil || n < 0:
		w.Extent = extentOpen
		delete(w.Header(), "Content-Length")
		w.X.Lane.Server.Logf("http: invalid Content-Length of %q", values[0])
		return true
	case w.Said.Coding != CodingNone && w.Said.Coding != CodingIdentity:
		w.X.Lane.Server.Logf("http: WriteHeader called with both Transfer-Encoding of %q and a Content-Length of %d",
			w.Header().Get("Transfer-Encoding"), n)
		return true
	case !BodyAllowed(w.Status):
		return true
	}
	w.Extent, w.length = extentDeclared, n
	return false
}

func (w *Response) announce(values []string) {
	if len(values) == 0 {
		return
	}
	said := w.Tell()
	said.trails = true
	said.trailers = slices.Grow(said.trailers, len(values))
	for _, list := range values {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if httpguts.ValidTrailerHeader(name) {
				said.trailers = append(said.trailers, name)
			}
		}
	}
}

// BodyAllowed is RFC 9110 section 6.4.1.
func BodyAllowed(status int) bool { return status >= 200 && status != 204 && status != 304 }

// SendHead sends the head with what has been gathered. last: nothing follows. next is what the
// handler writes on top of what has been gathered.
func (w *Response) SendHead(next []byte, last bool) error {
	w.Head = HeadSent
	defer w.drop()
	return w.X.Carrier.SendHead(next, last)
}

func (w *Response) drop() {
	w.Near = nil
	w.dropPending()
}

// trailersNeedChunks reports whether trailers follow that would be lost behind a Content-Length.
func (w *Response) trailersNeedChunks() bool {
	switch w.Framing {
	case FramingStream:
		return false
	case FramingPlain:
		return w.Said.trails
	}
	if _, only := w.usual(); only || w.Said.trails {
		return w.Said.trails
	}
	for name := range w.Header() {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true // which was not announced
		}
	}
	return false
}

// NeedsFrame reports whether nothing says yet where the answer's body ends.
func (w *Response) NeedsFrame() bool { return BodyAllowed(w.Status) && !w.NoBody && !w.Extent.Known() }

// AppendDecided appends the fields that the server finds out: the date, the type of a body that
// begins with first and next, its length.
func (w *Response) AppendDecided(p []byte, code *FieldCoder, first, next []byte) []byte {
	if !w.Said.dated {
		p = code.Field(p, "Date", w.X.date())
	}
	if BodyAllowed(w.Status) && !w.gotType && w.Said.Coding == CodingNone && len(first)+len(next) > 0 {
		p = code.Field(p, "Content-Type", sniff(first, next))
	}
	if w.Extent == extentFound {
		p = code.Length(p, w.length)
	}
	return p
}

// AppendTrailer appends the fields of the trailer section: those that were announced, and those
// with http.TrailerPrefix.
func (w *Response) AppendTrailer(p []byte, code *FieldCoder) []byte {
	if _, only := w.usual(); only {
		return p
	}
	header := w.Header()
	var few [fewNames]string
	for _, name := range w.names(few[:0]) {
		key, prefixed := strings.CutPrefix(name, http.TrailerPrefix)
		if prefixed || slices.Contains(w.Said.trailers, name) {
			p = code.Append(p, key, header[name])
		}
	}
	return p
}

const (
	// bodyBuffer is how much of an answer is gathered before it is sent: small writes leave
	// together, and an answer that fits gets a Content-Length. The same as net/http.
	bodyBuffer  = 2 << 10
	firstBuffer = 256 // what is taken for it at first
	// pieceBytes is how a large Write is cut, so that waiting for room makes progress: as a chunk
	// of HTTP/1 it just fits a block.
	pieceBytes = 32<<10 - ChunkRoom
)

func writeBody[T []byte | string](w *Response, p T) (int, error) {
	if err := w.mayWrite(len(p)); err != nil || len(p) == 0 {
		return 0, err
	}
	w.Written += int64(len(p))
	if room := w.gather(len(p)); room != nil {
		return copy(room, p), nil
	}
	return w.pass([]byte(p))
}

// mayWrite begins the answer if it has not begun, and reports what speaks against n more bytes of
// body.
func (w *Response) mayWrite(n int) error {
	switch at := w.X.Progress(); {
	case at.Taken():
		if n > 0 {
			w.X.Lane.Server.Logf("http: response.Write on hijacked connection from %s", caller())
		}
		return http.ErrHijacked
	case at.Over():
		return ErrHandlerOver
	case w.failed != nil:
		return w.failed
	}
	if w.Head == HeadOpen {
		w.fix(http.StatusOK)
	}
	switch {
	case n == 0:
		return nil
	case !BodyAllowed(w.Status):
		return http.ErrBodyNotAllowed
	case w.Extent.Known() && w.Written+int64(n) > w.length:
		w.Written += int64(n) // nothing fits any more, and the connection ends: the answer is not what its head says
		return http.ErrContentLength
	}
	return nil
}

var ErrHandlerOver = errors.New("web: Write after the handler has returned: use Detached for an answer that " +
	"outlives it")

// gather gives n bytes of room behind what waits, as long as that is little; else nil.
func (w *Response) gather(n int) []byte {
	if at := len(w.Near); w.pending == nil && at+n <= cap(w.Near) {
		w.Near = w.Near[:at+n]
		return w.Near[at:]
	}
	first := w.Gathered()
	switch {
	case len(first)+n > bodyBuffer || len(first) == 0 && w.Head == HeadSent && w.NoBody:
		return nil
	case w.pending == nil:
		w.pending = buf.Get(max(len(first)+n, firstBuffer))
		w.pending.Append(first)
		w.Near = nil
	case w.pending.Free() < n:
		larger := buf.Get(bodyBuffer)
		larger.Append(first)
		w.pending.Release()
		w.pending = larger
	}
	room := w.pending.Extend()[:n]
	w.pending.Commit(n)
	return room
}

// Gathered is the bytes of the body that wait.
func (w *Response) Gathered() []byte {
	if w.pending != nil {
		return w.pending.Bytes()
	}
	return w.Near
}

// pass sends p behind what was gathered.
func (w *Response) pass(p []byte) (int, error) {
	switch {
	case w.Head != HeadSent:
		if err := w.SendHead(p, false); err != nil {
			return 0, err
		}
	case w.pending != nil:
		if err := w.sendPending(false); err != nil {
			return 0, err
		}
	}
	if w.NoBody {
		return len(p), nil
	}
	return w.sendPieces(p)
}

// sendPending sends what was gathered behind a head that has gone. last: and the end.
func (w *Response) sendPending(last bool) error {
	defer w.dropPending()
	var data []byte
	if w.pending != nil && !w.NoBody {
		data = w.pending.Bytes()
	}
	return w.X.Carrier.SendData(data, last)
}

func (w *Response) dropPending() {
	if w.pending != nil {
		w.pending.Release()
		w.pending = nil
	}
}

func (w *Response) sendPieces(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		piece := p[sent:min(len(p), sent+pieceBytes)]
		if err := w.X.Carrier.SendData(piece, false); err != nil {
			return sent, err
		}
		sent += len(piece)
	}
	return sent, nil
}

// finish completes the answer when the handler has returned.
func (w *Response) finish() error {
	if w.Head == HeadOpen {
		w.fix(http.StatusOK)
	}
	var err error
	if w.Head == HeadSent {
		err = w.sendPending(true)
	} else {
		if w.Extent == extentOpen && w.Said.Coding == CodingNone && !w.trailersNeedChunks() &&
			BodyAllowed(w.Status) && (!w.NoBody || w.Written > 0) {
			w.Extent, w.length = extentFound, w.Written // the answer is whole
		}
		err = w.SendHead(nil, true)
	}
	if err != nil {
		return err
	}
	if w.IsShort() {
		return fmt.Errorf("web: the handler declared %d bytes and wrote %d: %w", w.length, w.Written,
			http.ErrContentLength)
	}
	return nil
}

// IsShort reports whether the answer lacks something of the Content-Length that its handler has
// declared.
func (w *Response) IsShort() bool {
	return w.Extent.Known() && w.Written != w.length && !w.NoBody && BodyAllowed(w.Status)
}

// Alive reports what speaks against a further piece of the answer, if that is empty.
func (w *Response) Alive() error {
	if w.failed != nil {
		return w.failed
	}
	return w.LostErr()
}

// SendWhenRoom calls send until it is not refused for want of room. It fails once the deadline for
// the answer has passed, and from then on: whatever has been left out, nothing must follow.
func (w *Response) SendWhenRoom(send func() error) error {
	for w.failed == nil {
		err := w.inTime()
		if err == nil {
			err = send()
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, myriad.ErrFull):
			w.failed = err
		case !w.X.HandOff():
			w.failed = myriad.ErrOnLoop
		default:
			w.failed = w.WaitForRoom(ForAnswer)
		}
		if w.failed != nil && w.failed != myriad.ErrOnLoop {
			w.sendFailed()
		}
	}
	return w.failed
}

// sendFailed says what has failed in the words of net/http, and ends the context, as that does.
func (w *Response) sendFailed() {
	if cause := w.LostErr(); cause != nil {
		w.failed = cause // of which the carrier need not know
	}
	w.failed = w.X.netError("write", w.failed)
	w.X.Given.Ctx.Depart()
}

// inTime fails when the answer is late.
func (w *Response) inTime() error {
	by := Moment(w.WriteBy.Load())
	if by == Never {
		return nil
	}
	if !by.Passed(w.X.Lane.Server.Now()) {
		return w.LostErr()
	}
	w.Lose(os.ErrDeadlineExceeded)
	return w.LostErr()
}

// WaitForRoom waits for Drained or the end of the connection.
func (w *Response) WaitForRoom(purpose func(*seldom) *driver.Parker) error {
	w.Mu.Lock()
	p := purpose(w.more())
	fresh := *p == nil
	if fresh {
		*p = w.X.Lane.Server.Engine.System().NewParker()
	}
	w.Mu.Unlock()
	if err := w.LostErr(); fresh || err != nil {
		return err // fresh: there may have been room before the parker was there, and the carrier is asked again
	}
	if w.X.Carrier.HasTurn() {
		w.X.awaitClient(*p)
	} else {
		(*p).Park() // for other handlers
	}
	return w.LostErr()
}

func (w *Response) LostErr() error {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return w.lost
}

func (w *Response) Wake() {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if s := w.Seldom; s != nil {
		unpark(s.Room)
		unpark(s.interim)
	}
}

func unpark(p driver.Parker) {
	if p != nil {
		p.Unpark()
	}
}

// Lose has every later write fail with err, unless one fails already.
func (w *Response) Lose(err error) {
	w.Mu.Lock()
	if w.lost == nil {
		w.lost = err
	}
	w.Mu.Unlock()
	w.Wake()
}

func (w *Response) setReadDeadline(t time.Time) {
	if b := w.X.Body; b != nil {
		b.setReadBy(w.X.Lane.Server.moment(t))
	}
}

func (w *Response) setWriteDeadline(t time.Time) {
	w.WriteBy.Store(int64(w.X.Lane.Server.moment(t)))
	w.X.Demand(DemandDeadline | demandWriteBy)
}

// Outlive fixes the head of a response that is to outlive its handler: with the status that
// middleware has kept back, or 200. It has middleware see the status by WriteHeader, and writes no
// body, not even an empty one, where middleware that compresses begins. The Stream bypasses that,
// so a Content-Encoding that middleware adds in WriteHeader is taken back.
func (w *Response) Outlive(outer http.ResponseWriter) {
	if w.Head != HeadOpen {
		return
	}
	const field = "Content-Encoding"
	own := w.Header()[field]
	writeHeaderNow(outer)
	if w.Head == HeadOpen {
		outer.WriteHeader(http.StatusOK)
	}
	header := w.Header() // middleware may have made it just now
	if w.Head == HeadOpen || slices.Equal(own, header[field]) {
		return // middleware that still keeps the status back is bypassed when the head is sent
	}
	if header[field] = own; own == nil {
		delete(header, field)
	}
	w.X.Carrier.Snapshot()
}

// writeHeaderNow has the outermost middleware that keeps a status back, as gin does, pass it on.
func writeHeaderNow(w http.ResponseWriter) {
	for {
		if keeps, ok := w.(interface{ WriteHeaderNow() }); ok {
			keeps.WriteHeaderNow()
			return
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return
		}
		w = wrapper.Unwrap()
	}
}

// sniffLen is how much of a body http.DetectContentType looks at.
const sniffLen = 512

const plainText = "text/plain; charset=utf-8"

// sniff finds the Content-Type of a body that begins with first and goes on with next.
func sniff(first, next []byte) string {
	if len(first) < sniffLen && len(next) > 0 {
		first = append(append(make([]byte, 0, sniffLen), first...), next[:min(len(next), sniffLen-len(first))]...)
	}
	first = first[:min(len(first), sniffLen)]
	if startsPlain(first) && !hasBinary(first) {
		return plainText
	}
	return http.DetectContentType(first)
}

// startsPlain reports whether no signature of the MIME Sniffing standard (section 7.1) begins as p
// does: then p is text or it is not, and the table need not be searched. No box of an MP4 file is
// so small that its length begins with a letter.
func startsPlain(p []byte) bool {
	if len(p) == 0 {
		return false
	}
	switch c := p[0]; {
	case c == '{' || c == '[' || c == '"' || '0' <= c && c <= '9':
		return true
	case 'a' <= c && c <= 'z':
		return c != 'w' && c != 't'
	case 'A' <= c && c <= 'Z':
		switch c {
		case 'A', 'B', 'F', 'G', 'I', 'M', 'O', 'P', 'R':
			return false
		}
		return true
	}
	return false
}

// hasBinary reports whether p has a binary data byte (MIME Sniffing section 2).
func hasBinary(p []byte) bool {
	for _, c := range p {
		if c < ' ' && (c <= 0x08 || c == 0x0b || 0x0e <= c && c <= 0x1a || 0x1c <= c) {
			return true
		}
	}
	return false
}
