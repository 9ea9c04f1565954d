package tlsloop

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/tlsloop/internal/record"
)

const (
	// directWrite is the largest Write that the calling goroutine encodes. The loop encodes larger
	// ones in slices of this size. So a caller holds the conn's lock, and one conn holds the loop,
	// for about 20 µs at most.
	directWrite = 64 << 10
	// maxAnswers bounds the bytes that a peer can make the tls.Conn send by itself (answers to
	// KeyUpdate) while it reads nothing of what is queued. Beyond that the connection fails with
	// ErrFlood.
	maxAnswers = 16 << 10
)

// ErrFlood says that a peer asked for key updates again and again and did not read the answers.
var ErrFlood = errors.New("tlsloop: the peer asks for key updates and does not read them")

// phase says what Write may do. It is guarded by the conn's lock.
type phase uint8

const (
	handshaking phase = iota
	established
	broken
)

// A session is the TLS of one conn: the Layer between its socket and its handler. The tls.Conn is
// used under the conn's lock after the handshake, and by the handshake's coroutine alone until
// then. If records take over from it behind the handshake, before the handler is opened, it is nil.
type session struct {
	tls  *tls.Conn
	rec  *records // nil: the tls.Conn seals and opens
	kind *kind
	conn *myriad.Conn
	wire myriad.Wire // with the conn's lock held, and valid while it is
	hs   *handshake  // nil when it has ended; owned by the loop
	raw  net.Conn    // the connection below, while the session is not in an engine

	state *tls.ConnectionState // of SharedState; nil until it is called, or rec goes on

	// in is owned by the loop: wire bytes not yet given to the tls.Conn, empty but while it reads;
	// or the part of a record that rec waits for.
	in      []byte
	debt    backlog // guarded by the conn's lock
	frame   framing
	answers int32
	phase   phase
	open    bool // the handshake's coroutine has ended; guarded by the conn's lock, once it has
	reading bool // the tls.Conn's Read is running: what it writes are answers
	leaving bool // it is on its way out of the engine, and in is kept for the tls.Conn
	ended   bool // the peer's close_notify or FIN has come, or an error: the tls.Conn is not read again
	cut     bool // the peer's FIN has come without its close_notify
}

var _ myriad.BufferedLayer = (*session)(nil)

// Received gives wire bytes to the handshake, or decodes them. An adopted conn's first are none:
// what its tls.Conn has read before comes out then.
func (s *session) Received(w myriad.Wire, p []byte) {
	if s.leaving {
		s.in = append(s.in, p...)
		return
	}
	if len(s.in) > 0 && s.rec == nil { // what the handshake has left
		p = append(s.in, p...)
	}
	switch {
	case s.hs != nil:
		s.hs.feed(p)
	case s.rec != nil:
		if c := w.Conn(); s.conn != c { // it has come back into an engine
			w.Sync(func(myriad.Wire) { s.conn = c })
		}
		s.decodeRecords(w, p)
	case s.conn != w.Conn(): // it has come from outside, where it may have been before
		s.conn = w.Conn()
		s.decode(w, p, true)
	default:
		s.decode(w, p, false)
	}
}

// decode hands the plaintext of p to the handler. Each Read takes one record, so the tls.Conn holds
// at most the part of a record afterwards. With drain, Read is called until it would block, for a
// tls.Conn that has read ahead.
func (s *session) decode(w myriad.Wire, p []byte, drain bool) {
	if s.ended {
		return
	}
	s.in = p
	block := buf.Get(maxPlaintext + lentLen)
	defer block.Release()
	plain, lent := block.Extend()[:maxPlaintext], block.Extend()[maxPlaintext:]
	defer buffers.takeBack(s.tls, lent, p)
	if s.conn.Queued() == 0 {
		s.answers = 0
	}
	for (drain || len(s.in) > 0) && !s.ended {
		if !s.hand() {
			buffers.lend(s.tls, lent)
		}
		n, err := s.read(w, plain)
		if n > 0 {
			w.Deliver(plain[:n:n])
		}
		if err == errWouldBlock {
			break
		}
		if err == nil && s.answers > maxAnswers {
			err = ErrFlood
		}
		if err != nil {
			s.end(w, err)
		}
	}
	s.in = nil
}

// hand puts the next record into the tls.Conn without a copy, if all of it has arrived. It is
// decrypted in the driver's buffer. It reports false if the tls.Conn must read the record by
// itself.
func (s *session) hand() bool {
	n := s.frame.whole(s.in)
	if n == 0 || !buffers.put(s.tls, s.in[:n:n]) {
		return false
	}
	s.in = s.in[n:]
	return true
}

func (s *session) read(w myriad.Wire, plain []byte) (n int, err error) {
	w.Sync(func(w myriad.Wire) {
		s.wire, s.reading = w, true
		n, err = s.tls.Read(plain)
		s.reading = false
	})
	return n, err
}

// end handles the first error of the tls.Conn's Read. Read does not repeat every error.
func (s *session) end(w myriad.Wire, err error) {
	s.ended = true
	if err == io.EOF {
		w.End()
		return
	}
	w.Sync(func(myriad.Wire) { s.phase = broken })
	w.Fail(err)
}

// Ended is the peer's FIN: in order after its close_notify, else a truncation. This side of the
// session goes on, because many clients end theirs without a close_notify and wait for an answer.
func (s *session) Ended(w myriad.Wire) {
	switch {
	case s.hs != nil:
		s.hs.finish()
	case !s.leaving:
		s.catchUp(w)
		if !s.ended {
			s.ended, s.cut = true, true
			w.Truncated(io.ErrUnexpectedEOF)
		}
	}
}

// catchUp decodes what the handshake has left, unless something that came sooner has done so, or
// the tls.Conn leaves with it.
func (s *session) catchUp(w myriad.Wire) {
	if s.leaving {
		return // the tls.Conn may have another owner by now
	}
	switch p := s.in; {
	case s.rec != nil:
		s.decodeRecords(w, nil)
	case len(p) > 0:
		s.decode(w, p, false)
	}
}

// Closed implements myriad.Layer.
func (s *session) Closed(err error) error {
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Write encodes p, or keeps it until the handshake has ended or the loop comes to it.
func (s *session) Write(w myriad.Wire, p []byte) (int, error) {
	switch {
	case s.phase == broken || s.rec != nil && s.rec.closed:
		return 0, myriad.ErrClosed
	case w.Room() < encodedLen(len(p)):
		return 0, myriad.ErrFull
	case s.phase == handshaking || s.debt.n > 0 || len(p) > directWrite:
		s.debt.add(p)
		w.Owe(len(p))
		return len(p), nil
	}
	return s.encode(w, p)
}

// encodedLen is how many bytes a Write becomes at most. crypto/tls begins with records of about
// 1,100 bytes. A record adds 100 bytes at most (TLS 1.2 with CBC: header, IV, MAC, padding).
func encodedLen(n int) int { return n + (n/1000+2)*100 }

func (s *session) encode(w myriad.Wire, p []byte) (int, error) {
	switch {
	case s.rec != nil && s.rec.closed:
		return 0, myriad.ErrClosed
	case s.rec != nil:
		return writeRecords(s.rec, w, p)
	}
	s.wire = w
	n, err := s.tls.Write(p)
	if err != nil {
		return 0, fmt.Errorf("tlsloop: Write: %w", err)
	}
	return n, nil
}

// Encode implements myriad.BufferedLayer: a slice of what has been kept.
func (s *session) Encode(w myriad.Wire) (more bool) {
	switch s.phase {
	case handshaking:
		return false
	case broken:
		w.Owe(-s.debt.drop())
		return false
	}
	p := s.debt.first(directWrite)
	s.debt.discard(len(p))
	w.Owe(-len(p))
	if _, err := s.encode(w, p); err != nil { // its Read has failed, and the conn with it
		w.Owe(-s.debt.drop())
		return false
	}
	return s.debt.n > 0
}

// CloseWrite queues the close_notify.
func (s *session) CloseWrite(w myriad.Wire) error {
	if s.phase != established {
		return nil
	}
	if s.rec != nil {
		notice := record.CloseNotify()
		s.alert(w, notice[:])
		return nil
	}
	s.wire = w
	return s.tls.CloseWrite()
}

// CloseTruncated queues the beginning of a record that nothing follows, for Conn.CloseTruncated.
// Many peers, crypto/tls among them, take an end between two records for an orderly one.
func (s *session) CloseTruncated(w myriad.Wire) error {
	if s.phase != established {
		return nil
	}
	_, err := w.Write([]byte{23, 3, 3})
	return err
}

// Detach gives the tls.Conn itself over the connection that has left the engine, or what stands for
// it if there is none any more.
func (s *session) Detach(raw net.Conn, unread []byte) (net.Conn, []byte) {
	if s.hs != nil { // nothing has been decrypted yet
		s.hs.kill()
		_ = raw.Close()
		return raw, nil
	}
	s.raw = raw
	if s.rec != nil {
		return newDetached(s), unread
	}
	return s.tls, unread
}

// backlog is plaintext that has been taken and not encoded.
type backlog struct {
	parts [][]byte
	n     int
}

func (b *backlog) add(p []byte) {
	if len(p) > 0 {
		b.parts = append(b.parts, append([]byte(nil), p...))
		b.n += len(p)
	}
}

// first is at most n bytes of the oldest part.
func (b *backlog) first(n int) []byte {
	if len(b.parts) == 0 {
		return nil
	}
	return b.parts[0][:min(n, len(b.parts[0]))]
}

func (b *backlog) discard(n int) {
	if n == 0 {
		return
	}
	b.n -= n
	if b.parts[0] = b.parts[0][n:]; len(b.parts[0]) > 0 {
		return
	}
	b.parts[0] = nil
	if b.parts = b.parts[1:]; len(b.parts) == 0 {
		b.parts = nil
	}
}

// drop forgets everything and says how much that was.
func (b *backlog) drop() int {
	n := b.n
	*b = backlog{}
	return n
}
