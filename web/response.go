package web

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/web/internal/h1"
)

const (
	// bodyBuffer is how much of an answer is gathered before its head must be decided: an answer that fits gets a
	// Content-Length.
	bodyBuffer  = 2 << 10
	firstBuffer = 256 // what is taken for it at first
	// pieceBytes is how a large Write is cut, so that waiting for room makes progress.
	pieceBytes = 32 << 10
	// headRoom is what a usual answer's head takes.
	headRoom = 512
)

// A response is the http.ResponseWriter of an exchange. The handler's goroutine owns it, except for what mu guards.
type response struct {
	x      *exchange
	header http.Header
	status int
	minor  int // of the HTTP version spoken

	// pending holds what has not been given to the transport: the status and fields once WriteHeader was called, then, from
	// bodyAt on, the first bytes of the body, up to bodyBuffer.
	fields   *buf.Block // status line and the handler's fields, fixed by WriteHeader
	pending  *buf.Block // the first bytes of the body
	length   int64      // declared by the handler, or -1
	written  int64
	trailers []string // announced by the handler

	wroteHeader bool
	sentHead    bool
	chunked     bool
	noBody      bool // HEAD
	closeAfter  bool // the connection ends with this answer
	askedClose  bool // the handler set Connection: close
	keepAlive10 bool // HTTP/1.0 with keep-alive
	gotType     bool // the handler set Content-Type, or forbade sniffing
	gotDate     bool
	gotLength   bool
	gotCoding   bool
	over        bool // the handler has returned

	mu       sync.Mutex
	lost     error         // guarded by mu: the connection has gone
	room     driver.Parker // guarded by mu: the writer that waits for room
	deadline *deadlines    // guarded by mu; nil: none has been set
}

// deadlines are what ResponseController has set; zero for none, and set tells which were.
type deadlines struct {
	read, write       time.Time
	readSet, writeSet bool
}

func (w *response) begin(req *http.Request, head *h1.Head) {
	w.length = -1
	w.minor = min(head.Minor, 1)
	w.noBody = req.Method == http.MethodHead
	w.closeAfter = !head.KeepAlive
	w.keepAlive10 = head.Minor == 0 && head.KeepAlive
}

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

// WriteHeader implements http.ResponseWriter. Informational answers (1xx) are sent at once.
func (w *response) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("web: WriteHeader(%d): a status has three digits", status))
	}
	switch {
	case w.x.takenOver():
		w.x.lane.s.logf("web: WriteHeader(%d) on a connection that was taken over", status)
	case w.over || w.wroteHeader:
		w.x.lane.s.logf("web: superfluous WriteHeader(%d) for %s", status, w.x.req.URL)
	case status < 200 && status != http.StatusSwitchingProtocols:
		w.informational(status)
	default:
		w.status = status
		w.wroteHeader = true
		w.fixFields()
	}
}

func (w *response) informational(status int) {
	if w.minor == 0 {
		return // RFC 9110 section 15.2: not to an HTTP/1.0 client
	}
	if status == http.StatusContinue {
		w.x.body.continueSent()
	}
	p := h1.AppendStatusLine(make([]byte, 0, headRoom), w.minor, status)
	for _, name := range w.names() {
		if name == "Content-Length" || name == "Transfer-Encoding" {
			continue
		}
		p = appendFields(p, name, w.header[name])
	}
	_ = w.send(append(p, "\r\n"...))
}

// sendContinue tells the client to send the body it has announced, unless an answer has begun.
func (w *response) sendContinue() {
	if !w.wroteHeader {
		_ = w.send([]byte(h1.Continue)) // a broken connection shows in Read
	}
}

// fixFields encodes status and fields as they are now: later changes to the map mean trailers only.
func (w *response) fixFields() {
	p := h1.AppendStatusLine(w.room512(), w.minor, w.status)
	w.announce(w.header["Trailer"])
	for _, name := range w.names() {
		if values := w.header[name]; !w.special(name, values) {
			p = appendFields(p, name, values)
		}
	}
	if w.fields != nil && len(p) <= w.fields.Cap() {
		w.fields.Commit(len(p))
		return
	}
	w.fields.Release()
	w.fields = buf.Get(len(p) + headRoom)
	w.fields.Append(p)
}

// names are the header's keys in order, so that the same answer has the same bytes.
func (w *response) names() []string {
	if len(w.header) == 0 {
		return nil
	}
	names := make([]string, 0, len(w.header))
	for name := range w.header {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func appendFields(p []byte, name string, values []string) []byte {
	for _, v := range values {
		p = h1.AppendField(p, name, v)
	}
	return p
}

func (w *response) room512() []byte {
	w.fields = buf.Get(headRoom)
	return w.fields.Extend()[:0]
}

// special handles the fields that say how the answer is framed, and reports whether the field is not to be copied.
func (w *response) special(name string, values []string) bool {
	switch name {
	case "Content-Length":
		return w.declareLength(values)
	case "Transfer-Encoding":
		w.gotCoding = len(values) > 0 && values[0] != "identity" && values[0] != "chunked"
		return true
	case "Connection":
		w.askedClose = httpguts.HeaderValuesContainsToken(values, "close")
		return w.askedClose || len(values) == 1 && strings.EqualFold(values[0], "keep-alive") // the server says which
	case "Date":
		w.gotDate = true
	case "Content-Type", "Content-Encoding":
		w.gotType = w.gotType || name == "Content-Type" || len(values) > 0 && values[0] != ""
	}
	return strings.HasPrefix(name, http.TrailerPrefix) || w.isAnnounced(name)
}

func (w *response) declareLength(values []string) bool {
	if len(values) == 0 {
		return true
	}
	n, err := strconv.ParseInt(strings.TrimSpace(values[0]), 10, 64)
	if err != nil || n < 0 || !bodyAllowed(w.status) {
		if err != nil || n < 0 {
			w.x.lane.s.logf("web: invalid Content-Length of %q from a handler", values[0])
		}
		return true
	}
	w.length, w.gotLength = n, true
	return true
}

func (w *response) announce(values []string) {
	for _, list := range values {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if httpguts.ValidTrailerHeader(name) {
				w.trailers = append(w.trailers, name)
			}
		}
	}
}

func (w *response) isAnnounced(name string) bool {
	for _, t := range w.trailers {
		if t == name {
			return true
		}
	}
	return false
}

// bodyAllowed is RFC 9110 section 6.4.1.
func bodyAllowed(status int) bool { return status >= 200 && status != 204 && status != 304 }

// Write implements http.ResponseWriter. It waits while the connection's queue is full.
func (w *response) Write(p []byte) (int, error) { return writeBody(w, p) }

// WriteString implements io.StringWriter.
func (w *response) WriteString(s string) (int, error) { return writeBody(w, s) }

func writeBody[T []byte | string](w *response, p T) (int, error) {
	switch {
	case w.x.takenOver():
		return 0, http.ErrHijacked
	case w.over:
		return 0, errHandlerOver
	}
	if !w.wroteHeader {
		w.WriteHeader(http.StatusOK)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if !bodyAllowed(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if w.length >= 0 && w.written+int64(len(p)) > w.length {
		return 0, http.ErrContentLength
	}
	w.written += int64(len(p))
	if w.keep(len(p)) {
		w.pending.Commit(len(append(w.pending.Extend()[:0], p...)))
		return len(p), nil
	}
	return w.pass([]byte(p))
}

var errHandlerOver = errors.New("web: Write after the handler has returned: use Detached for an answer that outlives it")

// keep makes room for n bytes among the first, as long as these are few: what is kept may turn out to be all, and then gets
// a Content-Length.
func (w *response) keep(n int) bool {
	switch {
	case w.sentHead:
		return false
	case w.pending == nil:
		if n > bodyBuffer {
			return false
		}
		w.pending = buf.Get(max(n, firstBuffer))
	case w.pending.Len()+n > bodyBuffer:
		return false
	case w.pending.Free() < n:
		w.grow(bodyBuffer)
	}
	return true
}

// pass sends p behind the head and what was kept.
func (w *response) pass(p []byte) (int, error) {
	if !w.sentHead {
		if err := w.sendHead(p, false); err != nil {
			return 0, err
		}
	}
	if w.noBody {
		return len(p), nil
	}
	return w.sendPieces(p)
}

func (w *response) grow(n int) {
	larger := buf.Get(n)
	larger.Append(w.pending.Bytes())
	w.pending.Release()
	w.pending = larger
}

func (w *response) sendPieces(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		piece := p[sent:min(len(p), sent+pieceBytes)]
		if err := w.sendData(piece); err != nil {
			return sent, err
		}
		sent += len(piece)
	}
	return sent, nil
}

func (w *response) sendData(p []byte) error {
	if !w.chunked {
		return w.send(p)
	}
	b := buf.Get(len(p) + 16)
	defer b.Release()
	return w.send(h1.AppendChunk(b.Extend()[:0], p))
}

// sendHead decides how the answer is framed and sends its head with what has been gathered. last: nothing follows.
// next is what the handler writes on top of what has been gathered.
func (w *response) sendHead(next []byte, last bool) error {
	w.sentHead = true
	var first []byte
	if w.pending != nil {
		first = w.pending.Bytes()
	}
	w.frame(first, next, last)
	b := buf.Get(w.fields.Len() + headRoom + len(first))
	defer b.Release()
	p := append(b.Extend()[:0], w.fields.Bytes()...)
	p = w.appendFraming(p, first, next)
	p = append(p, "\r\n"...)
	switch {
	case w.noBody:
	case w.chunked:
		p = h1.AppendChunk(p, first)
		if last {
			p = w.appendTrailer(append(p, h1.LastChunk...))
		}
	default:
		p = append(p, first...)
	}
	w.drop()
	return w.send(p)
}

func (w *response) drop() {
	if w.fields != nil {
		w.fields.Release()
		w.fields = nil
	}
	if w.pending != nil {
		w.pending.Release()
		w.pending = nil
	}
}

// frame chooses between Content-Length, chunks, and the end of the connection (RFC 9112 section 6).
func (w *response) frame(first, next []byte, last bool) {
	if last && w.length < 0 && !w.gotCoding && len(w.trailers) == 0 && !w.hasPrefixed() && bodyAllowed(w.status) && (!w.noBody || w.written > 0) {
		w.length = w.written
	}
	w.closeAfter = w.closeAfter || w.askedClose || w.x.lane.s.noAlive.Load() || w.x.body.blocksReuse(w.over)
	switch {
	case !bodyAllowed(w.status) || w.length >= 0:
	case w.noBody:
	case w.minor == 1:
		w.chunked = true
	default:
		w.closeAfter = true
	}
}

// appendFraming adds the fields that the server answers for.
func (w *response) appendFraming(p, first, next []byte) []byte {
	if !w.gotDate {
		p = h1.AppendField(p, "Date", w.x.lane.st.clock.date(w.x.lane.st.engine.System().Now()))
	}
	if bodyAllowed(w.status) && !w.gotType && w.written > 0 {
		p = append(append(append(p, "Content-Type: "...), sniff(first, next)...), "\r\n"...)
	}
	switch {
	case w.chunked:
		p = append(p, "Transfer-Encoding: chunked\r\n"...)
	case w.length >= 0 && bodyAllowed(w.status):
		p = h1.AppendLength(p, w.length)
	}
	switch {
	case w.closeAfter && w.minor == 1:
		p = append(p, "Connection: close\r\n"...)
	case !w.closeAfter && w.keepAlive10:
		p = append(p, "Connection: keep-alive\r\n"...)
	}
	return p
}

// hasPrefixed reports whether the handler has set a trailer that it did not announce.
func (w *response) hasPrefixed() bool {
	for name := range w.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

func (w *response) appendTrailer(p []byte) []byte {
	for _, name := range w.names() {
		key, prefixed := strings.CutPrefix(name, http.TrailerPrefix)
		if prefixed || w.isAnnounced(name) {
			p = appendFields(p, key, w.header[name])
		}
	}
	return append(p, "\r\n"...)
}

// Flush implements http.Flusher.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError sends what has been gathered. The connection's loop sends it to the client without further waiting.
func (w *response) FlushError() error {
	if w.x.takenOver() || w.over {
		return http.ErrHijacked
	}
	if !w.wroteHeader {
		w.WriteHeader(http.StatusOK)
	}
	if w.sentHead {
		return nil
	}
	return w.sendHead(nil, false)
}

// finish completes the answer when the handler has returned.
func (w *response) finish() error {
	if !w.wroteHeader {
		w.WriteHeader(http.StatusOK)
	}
	w.over = true
	if !w.sentHead {
		if err := w.sendHead(nil, true); err != nil {
			return err
		}
	} else if w.chunked && !w.noBody {
		if err := w.send(w.appendTrailer(append(make([]byte, 0, headRoom), h1.LastChunk...))); err != nil {
			return err
		}
	}
	if w.length >= 0 && w.written < w.length && !w.noBody && bodyAllowed(w.status) {
		return fmt.Errorf("web: the handler declared %d bytes and wrote %d: %w", w.length, w.written, http.ErrContentLength)
	}
	return nil
}

// send gives bytes to the transport, waiting for room where the handler may wait.
func (w *response) send(p []byte) error {
	for {
		err := w.x.transport.write(w.x, p)
		if !errors.Is(err, myriad.ErrFull) {
			return err
		}
		if w.x.inline {
			return myriad.ErrOnLoop
		}
		if err := w.waitForRoom(); err != nil {
			return err
		}
	}
}

// waitForRoom waits for Drained or the end of the connection.
func (w *response) waitForRoom() error {
	w.mu.Lock()
	if w.room == nil {
		w.room = w.x.lane.st.engine.System().NewParker()
		w.mu.Unlock()
		return w.lostErr() // the transport may have drained before the parker was there: ask it again first
	}
	p := w.room
	w.mu.Unlock()
	if err := w.lostErr(); err != nil {
		return err
	}
	p.Park()
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
	if w.room != nil {
		w.room.Unpark()
	}
}

func (w *response) lose(err error) {
	w.mu.Lock()
	w.lost = err
	w.mu.Unlock()
	w.wake()
}

var (
	_ http.Flusher  = (*response)(nil)
	_ http.Hijacker = (*response)(nil)
)

// CloseNotify implements http.CloseNotifier, which is deprecated and still asked for: gin's Context.Stream needs it.
func (w *response) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	w.x.ctx.AfterFunc(func() { gone <- true })
	return gone
}

// Hijack implements http.Hijacker: the connection leaves the engine as an ordinary net.Conn.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.x.hijack() }
