package web

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

// A response is what the http.ResponseWriter of an exchange does. The handler's goroutine owns it,
// except for what mu guards.
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

func forAnswer(s *seldom) *driver.Parker { return &s.room }

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
	case w.x.progress() == hijacked:
		w.x.lane.s.logf("http: response.WriteHeader on hijacked connection from %s", caller())
	case w.x.progress() == detached || w.x.progress().taken():
		// Middleware that records the status calls it behind the head that has been sent.
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
	if w.x.progress() != handling {
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

// A fieldCoder appends fields in the words of a version of HTTP.
type fieldCoder struct {
	field  func(p []byte, name, value string) []byte
	length func(p []byte, n int64) []byte // Content-Length
}

// header is what the handler has set, nil if that is nothing.
func (w *response) header() http.Header { return w.x.given.header }

// appendHeader appends the header's fields as they are now, for a carrier's snapshot: later changes
// to the map mean trailers only. It takes in what they say of the answer's framing.
func (w *response) appendHeader(p []byte, code *fieldCoder) []byte {
	if usual, only := w.usual(); only {
		for i := range usual {
			if f := &usual[i]; f.set {
				p = w.appendOwn(p, code, usualNames[i], f.values)
			}
		}
		return p
	}
	header := w.header()
	w.announce(header["Trailer"])
	if values, ok := header["Transfer-Encoding"]; ok {
		w.tell().coding = w.x.carrier.coding(values)
	}
	var few [fewNames]string
	for _, name := range w.names(few[:0]) {
		p = w.appendOwn(p, code, name, header[name])
	}
	return p
}

// appendInterim appends the header's fields for an informational answer.
func (w *response) appendInterim(p []byte, code *fieldCoder) []byte {
	header := w.header()
	for _, name := range w.names(nil) {
		if name != "Content-Length" && name != "Transfer-Encoding" {
			p = code.append(p, name, header[name])
		}
	}
	return p
}

// usual finds those of the header's fields that are usual, and reports whether there are no others.
// It does not look for more than there are.
func (w *response) usual() (found usualFields, only bool) {
	header := w.header()
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
func (w *response) names(dst []string) []string {
	for name := range w.header() {
		dst = append(dst, name)
	}
	if len(dst) > 1 {
		slices.Sort(dst)
	}
	return dst
}

// appendOwn appends a field of the handler's, unless that says how the answer is framed and the
// server finds other words for it.
func (w *response) appendOwn(p []byte, code *fieldCoder, name string, values []string) []byte {
	if w.special(name, values) {
		return p
	}
	return code.append(p, name, values)
}

func (code *fieldCoder) append(p []byte, name string, values []string) []byte {
	for _, v := range values {
		p = code.field(p, name, v)
	}
	return p
}

// special handles the fields that say how the answer is framed, and reports whether the field is
// not to be copied.
func (w *response) special(name string, values []string) bool {
	switch name {
	case "Content-Length":
		return w.declareLength(values)
	case "Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Connection", "Upgrade":
		return w.x.carrier.ownField(name, values)
	case "Date":
		w.tell().dated = true
	case "Content-Type":
		w.gotType = true
		// it would describe a body that is not there (RFC 9110 section 15.4.5)
		return w.status == http.StatusNotModified
	case "Content-Encoding":
		w.gotType = w.gotType || len(values) > 0 && values[0] != ""
	}
	return strings.HasPrefix(name, http.TrailerPrefix)
}

// declareLength takes the handler's Content-Length in. A key without a value keeps the server from
// finding one out. The field is copied as the handler wrote it.
func (w *response) declareLength(values []string) (skip bool) {
	w.extent = extentWithheld
	if len(values) == 0 || values[0] == "" {
		return true
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	switch {
	case err != nil || n < 0:
		w.extent = extentOpen
		delete(w.header(), "Content-Length")
		w.x.lane.s.logf("http: invalid Content-Length of %q", values[0])
		return true
	case w.words().coding != codingNone && w.words().coding != codingIdentity:
		w.x.lane.s.logf("http: WriteHeader called with both Transfer-Encoding of %q and a Content-Length of %d",
			w.header().Get("Transfer-Encoding"), n)
		return true
	case !bodyAllowed(w.status):
		return true
	}
	w.extent, w.length = extentDeclared, n
	return false
}

func (w *response) announce(values []string) {
	if len(values) == 0 {
		return
	}
	said := w.tell()
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

// bodyAllowed is RFC 9110 section 6.4.1.
func bodyAllowed(status int) bool { return status >= 200 && status != 204 && status != 304 }

// sendHead sends the head with what has been gathered. last: nothing follows. next is what the
// handler writes on top of what has been gathered.
func (w *response) sendHead(next []byte, last bool) error {
	w.head = headSent
	defer w.drop()
	return w.x.carrier.head(next, last)
}

func (w *response) drop() {
	w.near = nil
	w.dropPending()
}

// findLength is for an answer that is whole: it has the length that was written, unless the handler
// has said otherwise.
func (w *response) findLength() {
	if w.extent == extentOpen && w.words().coding == codingNone && !w.trailersNeedChunks() &&
		bodyAllowed(w.status) && (!w.noBody || w.written > 0) {
		w.extent, w.length = extentFound, w.written
	}
}

// trailersNeedChunks reports whether trailers follow that would be lost behind a Content-Length.
func (w *response) trailersNeedChunks() bool {
	switch w.framing {
	case framingStream:
		return false
	case framingPlain:
		return w.words().trails
	}
	return w.words().trails || w.hasPrefixed()
}

// needsFrame reports whether nothing says yet where the answer's body ends.
func (w *response) needsFrame() bool { return bodyAllowed(w.status) && !w.noBody && !w.extent.known() }

// appendDecided appends the fields that the server finds out: the date, the type of a body that
// begins with first and next, its length.
func (w *response) appendDecided(p []byte, code *fieldCoder, first, next []byte) []byte {
	if !w.words().dated {
		p = code.field(p, "Date", w.x.date())
	}
	if bodyAllowed(w.status) && !w.gotType && w.words().coding == codingNone && len(first)+len(next) > 0 {
		p = code.field(p, "Content-Type", sniff(first, next))
	}
	if w.extent == extentFound {
		p = code.length(p, w.length)
	}
	return p
}

// hasPrefixed reports whether the handler has set a trailer that it did not announce.
func (w *response) hasPrefixed() bool {
	if _, only := w.usual(); only {
		return false
	}
	for name := range w.header() {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

// appendTrailer appends the fields of the trailer section: those that were announced, and those
// with http.TrailerPrefix.
func (w *response) appendTrailer(p []byte, code *fieldCoder) []byte {
	if _, only := w.usual(); only {
		return p
	}
	header := w.header()
	var few [fewNames]string
	for _, name := range w.names(few[:0]) {
		key, prefixed := strings.CutPrefix(name, http.TrailerPrefix)
		if prefixed || slices.Contains(w.words().trailers, name) {
			p = code.append(p, key, header[name])
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
	pieceBytes = 32<<10 - chunkRoom
)

func writeBody[T []byte | string](w *response, p T) (int, error) {
	if err := w.mayWrite(len(p)); err != nil || len(p) == 0 {
		return 0, err
	}
	w.written += int64(len(p))
	if room := w.gather(len(p)); room != nil {
		return copy(room, p), nil
	}
	return w.pass([]byte(p))
}

// mayWrite begins the answer if it has not begun, and reports what speaks against n more bytes of
// body.
func (w *response) mayWrite(n int) error {
	switch {
	case w.x.progress().taken():
		if n > 0 {
			w.x.lane.s.logf("http: response.Write on hijacked connection from %s", caller())
		}
		return http.ErrHijacked
	case w.x.progress().over():
		return errHandlerOver
	case w.failed != nil:
		return w.failed
	}
	if w.head == headOpen {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case n == 0:
		return nil
	case !bodyAllowed(w.status):
		return http.ErrBodyNotAllowed
	case w.extent.known() && w.written+int64(n) > w.length:
		w.written += int64(n) // nothing fits any more, and the connection ends: the answer is not what its head says
		return http.ErrContentLength
	}
	return nil
}

var errHandlerOver = errors.New("web: Write after the handler has returned: use Detached for an answer that " +
	"outlives it")

// gather gives n bytes of room behind what waits, as long as that is little; else nil.
func (w *response) gather(n int) []byte {
	if at := len(w.near); w.pending == nil && at+n <= cap(w.near) {
		w.near = w.near[:at+n]
		return w.near[at:]
	}
	first := w.gathered()
	switch {
	case len(first)+n > bodyBuffer || len(first) == 0 && w.head == headSent && w.noBody:
		return nil
	case w.pending == nil:
		w.pending = buf.Get(max(len(first)+n, firstBuffer))
		w.pending.Append(first)
		w.near = nil
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

// gathered is the bytes of the body that wait.
func (w *response) gathered() []byte {
	if w.pending != nil {
		return w.pending.Bytes()
	}
	return w.near
}

// pass sends p behind what was gathered.
func (w *response) pass(p []byte) (int, error) {
	switch {
	case w.head != headSent:
		if err := w.sendHead(p, false); err != nil {
			return 0, err
		}
	case w.pending != nil:
		if err := w.sendPending(false); err != nil {
			return 0, err
		}
	}
	if w.noBody {
		return len(p), nil
	}
	return w.sendPieces(p)
}

// sendPending sends what was gathered behind a head that has gone. last: and the end.
func (w *response) sendPending(last bool) error {
	defer w.dropPending()
	var data []byte
	if w.pending != nil && !w.noBody {
		data = w.pending.Bytes()
	}
	return w.x.carrier.data(data, last)
}

func (w *response) dropPending() {
	if w.pending != nil {
		w.pending.Release()
		w.pending = nil
	}
}

func (w *response) sendPieces(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		piece := p[sent:min(len(p), sent+pieceBytes)]
		if err := w.x.carrier.data(piece, false); err != nil {
			return sent, err
		}
		sent += len(piece)
	}
	return sent, nil
}

// finish completes the answer when the handler has returned.
func (w *response) finish() error {
	if w.head == headOpen {
		w.WriteHeader(http.StatusOK)
	}
	if err := w.sendEnd(); err != nil {
		return err
	}
	if w.isShort() {
		return fmt.Errorf("web: the handler declared %d bytes and wrote %d: %w", w.length, w.written,
			http.ErrContentLength)
	}
	return nil
}

// isShort reports whether the answer lacks something of the Content-Length that its handler has
// declared.
func (w *response) isShort() bool {
	return w.extent.known() && w.written != w.length && !w.noBody && bodyAllowed(w.status)
}

func (w *response) sendEnd() error {
	if w.head != headSent {
		w.findLength()
		return w.sendHead(nil, true)
	}
	return w.sendPending(true)
}

// alive reports what speaks against a further piece of the answer, if that is empty.
func (w *response) alive() error {
	if w.failed != nil {
		return w.failed
	}
	return w.lostErr()
}

// sendWhenRoom calls send until it is not refused for want of room. It fails once the deadline for
// the answer has passed, and from then on: whatever has been left out, nothing must follow.
func (w *response) sendWhenRoom(send func() error) error {
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
		case !w.x.HandOff():
			w.failed = myriad.ErrOnLoop
		default:
			w.failed = w.waitForRoom(forAnswer)
		}
		if w.failed != nil && w.failed != myriad.ErrOnLoop {
			w.sendFailed()
		}
	}
	return w.failed
}

// sendFailed says what has failed in the words of net/http, and ends the context, as that does.
func (w *response) sendFailed() {
	if cause := w.lostErr(); cause != nil {
		w.failed = cause // of which the carrier need not know
	}
	w.failed = w.x.netError("write", w.failed)
	w.x.given.ctx.depart()
}

// inTime fails when the answer is late.
func (w *response) inTime() error {
	by := moment(w.writeBy.Load())
	if by == never {
		return nil
	}
	if !by.passed(w.x.lane.st.now()) {
		return w.lostErr()
	}
	w.lose(os.ErrDeadlineExceeded)
	return w.lostErr()
}

// waitForRoom waits for Drained or the end of the connection.
func (w *response) waitForRoom(purpose func(*seldom) *driver.Parker) error {
	w.mu.Lock()
	p := purpose(w.more())
	fresh := *p == nil
	if fresh {
		*p = w.x.lane.st.engine.System().NewParker()
	}
	w.mu.Unlock()
	if err := w.lostErr(); fresh || err != nil {
		return err // fresh: there may have been room before the parker was there, and the carrier is asked again
	}
	if w.x.carrier.hasTurn() {
		w.x.awaitClient(*p)
	} else {
		(*p).Park() // for other handlers
	}
	return w.lostErr()
}

func (w *response) lostErr() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

func (w *response) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.seldom; s != nil {
		unpark(s.room)
		unpark(s.interim)
	}
}

func unpark(p driver.Parker) {
	if p != nil {
		p.Unpark()
	}
}

// lose has every later write fail with err, unless one fails already.
func (w *response) lose(err error) {
	w.mu.Lock()
	if w.lost == nil {
		w.lost = err
	}
	w.mu.Unlock()
	w.wake()
}

func (w *response) setReadDeadline(t time.Time) {
	if b := w.x.body; b != nil {
		b.setReadBy(w.x.lane.st.moment(t))
	}
}

func (w *response) setWriteDeadline(t time.Time) {
	w.writeBy.Store(int64(w.x.lane.st.moment(t)))
	w.x.demand(demandDeadline | demandWriteBy)
}

// outlive fixes the head of a response that is to outlive its handler: with the status that
// middleware has kept back, or 200. It has middleware see the status by WriteHeader, and writes no
// body, not even an empty one, where middleware that compresses begins. The Stream bypasses that,
// so a Content-Encoding that middleware adds in WriteHeader is taken back.
func (w *response) outlive(outer http.ResponseWriter) {
	if w.head != headOpen {
		return
	}
	const field = "Content-Encoding"
	own := w.header()[field]
	writeHeaderNow(outer)
	if w.head == headOpen {
		outer.WriteHeader(http.StatusOK)
	}
	header := w.header() // middleware may have made it just now
	if w.head == headOpen || slices.Equal(own, header[field]) {
		return // middleware that still keeps the status back is bypassed when the head is sent
	}
	if header[field] = own; own == nil {
		delete(header, field)
	}
	w.x.carrier.snapshot()
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
