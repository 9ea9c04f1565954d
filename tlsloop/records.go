package tlsloop

import (
	"io"
	"net"
	"slices"
	"weak"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/tlsloop/internal/record"
)

// records are the record layer of a connection that has left its tls.Conn: keys and numbers of both
// directions. The AEADs are made of the keys when records pass, and kept until the next garbage
// collection: a busy connection makes few, and an idle one has none.
//
// The reader and opens are the loop's. The writer, seals and closed are guarded by the conn's lock.
// When the connection has left the engine, all of them are the detached conn's.
type records struct {
	reader  record.Reader
	writer  record.Writer
	opens   weak.Pointer[record.Cipher]
	seals   weak.Pointer[record.Cipher]
	outside *detached // has been one, and may have left plaintext; owned by the loop
	closed  bool      // a close_notify or a fatal alert was sent, or the keys are erased
}

// maxSealed is how many records one key seals.
var maxSealed uint64 = record.MaxSealed

// opener returns the Cipher that opens the next record.
func (r *records) opener() *record.Cipher {
	c := r.opens.Value()
	if c == nil {
		c = r.reader.Cipher()
		r.opens = weak.Make(c)
	}
	return c
}

// sealer returns the Cipher that seals the next record.
func (r *records) sealer() *record.Cipher {
	c := r.seals.Value()
	if c == nil {
		c = r.writer.Cipher()
		r.seals = weak.Make(c)
	}
	return c
}

// open opens a whole record in place, and follows the peer's key updates.
func (r *records) open(whole []byte) (record.Event, []byte, *record.Failure) {
	e, data, f := r.reader.Open(r.opener(), whole)
	if e == record.Updated || e == record.Requested {
		r.opens = weak.Pointer[record.Cipher]{}
	}
	return e, data, f
}

// append seals a record, and an update of the keys before it if they have sealed enough.
func (r *records) append(dst []byte, kind record.Type, content []byte) []byte {
	if r.writer.Number() >= maxSealed {
		dst = r.appendUpdate(dst)
	}
	return r.writer.Seal(r.sealer(), dst, kind, content)
}

func (r *records) appendUpdate(dst []byte) []byte {
	dst = r.writer.SealUpdate(r.sealer(), dst)
	r.seals = weak.Pointer[record.Cipher]{}
	return dst
}

// writeRecords seals p as records of application data, each of which w gets. W is a type, so that a
// Wire need not become an interface, which allocates.
func writeRecords[W io.Writer](r *records, w W, p []byte) (n int, err error) {
	size := min(len(p), record.MaxPlaintext) + 2*record.Overhead + updateLen
	block := buf.Get(size)
	defer block.Release()
	for len(p) > 0 {
		m := r.writer.Content(len(p))
		if _, err = w.Write(r.append(block.Extend()[:0], record.ApplicationData, p[:m])); err != nil {
			return n, err
		}
		n += m
		p = p[m:]
	}
	return n, nil
}

// updateLen is the content of a KeyUpdate.
const updateLen = 5

// erase overwrites the keys. AEADs made of them are left to the garbage collector.
func (r *records) erase() {
	*r = records{closed: true}
}

// errorOf is f as crypto/tls has it.
func errorOf(f *record.Failure) error {
	switch {
	case f.Err != nil:
		return f.Err
	case f.Remote:
		return &net.OpError{Op: "remote error", Err: f.Alert}
	}
	return &net.OpError{Op: "local error", Err: f.Alert}
}

// next cuts the first record off: from held, what has been kept of earlier bytes, and else from p.
// A record that begins in held is completed there with bytes of p. If there is no whole record,
// whole is nil, and held has what there is.
func next(held, p []byte) (whole, restHeld, restP []byte, f *record.Failure) {
	for len(held) > 0 {
		n, f := record.Size(held)
		switch {
		case f != nil:
			return nil, nil, nil, f
		case len(held) >= n:
			return held[:n:n], held[n:], p, nil
		case len(p) == 0:
			return nil, held, nil, nil
		}
		more := min(n-len(held), len(p))
		held = append(slices.Grow(held, n-len(held)), p[:more]...)
		if p = p[more:]; len(held) < record.HeaderLen {
			return nil, held, nil, nil
		}
	}
	n, f := record.Size(p)
	switch {
	case f != nil:
		return nil, nil, nil, f
	case len(p) >= n:
		return p[:n:n], nil, p[n:], nil
	case len(p) == 0:
		return nil, nil, nil, nil
	}
	return nil, append(make([]byte, 0, n), p...), nil, nil
}

// decodeRecords hands the plaintext of what has been held and of p to the handler. It is decode for
// a session that has left its tls.Conn.
func (s *session) decodeRecords(w myriad.Wire, p []byte) {
	if s.ended {
		s.in = nil
		return
	}
	if s.conn.Queued() == 0 {
		s.answers = 0
	}
	if d := s.rec.outside; d != nil {
		s.rec.outside = nil
		if len(d.left) > 0 {
			w.Deliver(d.left)
		}
	}
	held := s.in
	s.in = nil
	for !s.ended {
		var whole []byte
		var f *record.Failure
		if whole, held, p, f = next(held, p); f != nil {
			s.fail(w, f)
			return
		}
		if whole == nil {
			break
		}
		s.take(w, whole)
	}
	if len(held) > 0 && !s.ended {
		s.in = fitted(held)
	}
}

// fitted is the part of a record in memory of the record's size: what is held may lie at the end of
// many other records.
func fitted(held []byte) []byte {
	n, _ := record.Size(held)
	if cap(held) <= n+n/2 {
		return held
	}
	return append(make([]byte, 0, n), held...)
}

// take opens one record, and does what it says.
func (s *session) take(w myriad.Wire, whole []byte) {
	e, data, f := s.rec.open(whole)
	if f != nil {
		s.fail(w, f)
		return
	}
	switch e {
	case record.Data:
		w.Deliver(data)
	case record.Requested:
		w.Sync(s.answer)
		if s.answers > maxAnswers {
			s.end(w, ErrFlood)
		}
	case record.Closed:
		s.end(w, io.EOF)
	}
}

// answer queues the KeyUpdate that the peer has asked for. Behind a close_notify nothing may be
// sent.
func (s *session) answer(w myriad.Wire) {
	if s.rec.closed || s.phase != established {
		return
	}
	p := s.rec.appendUpdate(nil)
	s.answers += int32(len(p))
	_, _ = w.Write(p) // it fails behind the end, where it is not needed
}

// fail ends the conn, after the alert. No other goroutine gets the lock in between: its data would
// follow the alert.
func (s *session) fail(w myriad.Wire, f *record.Failure) {
	w.Sync(func(w myriad.Wire) {
		if content := f.AppendAlert(nil); len(content) > 0 {
			s.alert(w, content)
		}
		s.phase = broken
	})
	s.end(w, errorOf(f))
}

// alert queues an alert, which must be the last record. The conn's lock is held.
func (s *session) alert(w myriad.Wire, content []byte) {
	if s.rec.closed || s.phase != established {
		return
	}
	s.rec.closed = true
	_, _ = w.Write(s.rec.append(nil, record.Alert, content))
}

// Gone is called when the conn has gone: it will neither read nor write. On the loop.
func (s *session) Gone() {
	s.ended = true
	if s.rec != nil {
		s.in = nil
		s.rec.erase()
	}
}
