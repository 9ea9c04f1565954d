package tlsloop

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/tlsloop/internal/record"
)

// closePatience is how long Close tries to send its alert, as in crypto/tls.
const closePatience = 5 * time.Second

// errShutdown is that of crypto/tls.
var errShutdown = errors.New("tls: protocol is shutdown")

// A detached conn is a connection that has left the engine without a tls.Conn, which it stands for:
// Read and Write block, and may be called at once, by one goroutine each. Its methods are those
// that callers of a hijacked *tls.Conn look for.
//
// Unlike a tls.Conn, it takes a FIN between two records for a truncation: its Read returns io.EOF
// behind the peer's close_notify alone.
type detached struct {
	*pipe   // addresses, deadlines
	sys     driver.System
	moved   atomic.Bool // it is in an engine again, which has the keys; set with in and out held
	closing atomic.Bool // Close has been called: the side whose lock is held ends when that is released

	in      sync.Mutex
	plain   []byte // opened and not read
	left    []byte // plain, for the loop of an engine that has adopted it
	readErr error  // the first one that does not pass

	out      sync.Mutex
	writeErr error
}

var _ net.Conn = (*detached)(nil)

// minRead is how many bytes Read asks the conn below for at least, as crypto/tls does.
const minRead = 512

// newDetached takes s over, which has its raw conn.
func newDetached(s *session) *detached {
	d := &detached{pipe: (*pipe)(s), sys: s.conn.Loop().Engine().System()}
	switch {
	case s.cut:
		d.endReading(io.ErrUnexpectedEOF)
	case s.ended:
		d.endReading(io.EOF)
	}
	if s.rec.closed {
		d.endWriting(errShutdown)
	}
	return d
}

// Read implements net.Conn. An error of the conn below that passes, such as a deadline's, loses
// nothing.
func (d *detached) Read(p []byte) (int, error) {
	d.in.Lock()
	defer d.unlock(&d.in, d.endReading)
	if len(p) == 0 {
		return 0, nil
	}
	for len(d.plain) == 0 {
		if d.readErr != nil {
			return 0, d.readErr
		}
		if err := d.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, d.plain)
	if d.plain = d.plain[n:]; len(d.plain) == 0 {
		d.plain = nil
	}
	return n, nil
}

// fill opens the next record, or reads a part of it. While it waits for a record's first byte, it
// holds minRead bytes, and nothing between two calls.
func (d *detached) fill() error {
	whole, held, _, f := next(d.pipe.in, nil)
	d.pipe.in = held
	switch {
	case f != nil:
		return d.fail(f)
	case whole != nil:
		return d.take(whole)
	}
	held = withRoom(held)
	n, err := d.raw.Read(held[len(held):cap(held)])
	if held = held[:len(held)+n]; len(held) > 0 {
		d.pipe.in = held
	}
	switch e, ok := err.(net.Error); {
	case n > 0 || err == nil:
		return nil // an error comes again
	case ok && e.Timeout():
		return err
	case err == io.EOF:
		err = io.ErrUnexpectedEOF // there was no close_notify
	}
	d.endReading(err)
	return err
}

// withRoom is the part of a record in memory for all of it, or for minRead bytes.
func withRoom(held []byte) []byte {
	size, _ := record.Size(held)
	want := max(size, minRead)
	if cap(held) >= want {
		return held
	}
	return append(make([]byte, 0, want), held...)
}

// endReading ends the side whose keys are not needed any more. in is held, except in newDetached.
func (d *detached) endReading(err error) {
	if d.readErr == nil {
		d.readErr = err
	}
	if !d.moved.Load() {
		d.pipe.in = nil
		d.rec.reader.Erase()
	}
}

// endWriting is the same for the other side. out is held, except in newDetached.
func (d *detached) endWriting(err error) {
	if d.writeErr == nil {
		d.writeErr = err
	}
	if !d.moved.Load() {
		d.rec.writer.Erase()
	}
}

// unlock releases in or out. A Close that has found the lock held relies on its holder to end the
// side.
func (d *detached) unlock(side *sync.Mutex, end func(error)) {
	side.Unlock()
	if d.closing.Load() {
		d.end(side, end)
	}
}

func (d *detached) take(whole []byte) error {
	e, data, f := d.rec.open(whole)
	if f != nil {
		return d.fail(f)
	}
	switch e {
	case record.Data:
		d.plain = data
	case record.Requested:
		d.out.Lock()
		defer d.unlock(&d.out, d.endWriting)
		if d.writeErr == nil {
			if _, err := d.raw.Write(d.rec.appendUpdate(nil)); err != nil {
				d.endWriting(err)
			}
		}
	case record.Closed:
		d.endReading(io.EOF)
	}
	return nil
}

// fail sends the alert that is due, and ends both sides.
func (d *detached) fail(f *record.Failure) error {
	d.endReading(errorOf(f))
	d.out.Lock()
	defer d.unlock(&d.out, d.endWriting)
	if content := f.AppendAlert(nil); len(content) > 0 && d.writeErr == nil {
		_, _ = d.raw.Write(d.rec.append(nil, record.Alert, content))
	}
	d.endWriting(d.readErr)
	return d.readErr
}

// Write implements net.Conn. Any error is final.
func (d *detached) Write(p []byte) (n int, err error) {
	d.out.Lock()
	defer d.unlock(&d.out, d.endWriting)
	if d.writeErr != nil {
		return 0, d.writeErr
	}
	if n, err = writeRecords(d.rec, d.raw, p); err != nil {
		d.endWriting(err)
	}
	return n, err
}

// CloseWrite sends the close_notify, and leaves the conn below open, as that of a tls.Conn does.
func (d *detached) CloseWrite() error {
	d.out.Lock()
	defer d.unlock(&d.out, d.endWriting)
	return d.notify()
}

// notify sends the close_notify once. out is held.
func (d *detached) notify() error {
	if d.writeErr != nil {
		if errors.Is(d.writeErr, errShutdown) {
			return nil
		}
		return d.writeErr
	}
	notice := record.CloseNotify()
	_ = d.raw.SetWriteDeadline(d.sys.Now().Add(closePatience))
	_, err := d.raw.Write(d.rec.append(nil, record.Alert, notice[:]))
	d.endWriting(errShutdown)
	return err
}

// Close sends the close_notify, unless a Write is under way, which it breaks, and closes the conn
// below.
func (d *detached) Close() error {
	if d.moved.Load() {
		return net.ErrClosed
	}
	if d.out.TryLock() {
		_ = d.notify()
		d.writeErr = net.ErrClosed
		d.out.Unlock()
	}
	d.closing.Store(true)
	d.end(&d.out, d.endWriting) // of a Write that has ended before it could see closing
	err := d.raw.Close()
	d.end(&d.in, d.endReading)
	return err
}

// end ends a side of a conn that is being closed, unless the holder of its lock does.
func (d *detached) end(side *sync.Mutex, end func(error)) {
	if side.TryLock() {
		end(net.ErrClosed)
		side.Unlock()
	}
}

// ConnectionState is that of the tls.Conn.
func (d *detached) ConnectionState() tls.ConnectionState { return *d.state }

// Handshake does nothing: it is over.
func (*detached) Handshake() error { return nil }

// HandshakeContext does nothing: it is over.
func (*detached) HandshakeContext(context.Context) error { return nil }

// NetConn is what Engine.Adopt looks for.
func (d *detached) NetConn() net.Conn { return d.pipe }

// comesBack gives the session back for another time in an engine.
func (d *detached) comesBack() bool {
	d.in.Lock()
	defer d.in.Unlock()
	d.out.Lock()
	defer d.out.Unlock()
	if d.readErr != nil || d.writeErr != nil {
		return false
	}
	_ = d.raw.SetDeadline(time.Time{})
	d.left, d.plain = d.plain, nil
	d.rec.outside = d
	d.readErr, d.writeErr = net.ErrClosed, net.ErrClosed
	d.moved.Store(true)
	return true
}
