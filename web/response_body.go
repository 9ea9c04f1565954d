package web

import (
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

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
	case w.x.ending().taken():
		if n > 0 {
			w.x.lane.s.logf("http: response.Write on hijacked connection from %s", caller())
		}
		return http.ErrHijacked
	case w.x.ending().over():
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
