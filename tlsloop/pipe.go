package tlsloop

import (
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/myriad-go/myriad"
)

// A pipe is a session as the net.Conn that its tls.Conn reads and writes. Its bytes come from the
// handshake's buffers, from what the loop has just received, or from a net.Conn before and after
// the time in an engine.
type pipe session

var (
	_ net.Conn      = (*pipe)(nil)
	_ myriad.Lifter = (*pipe)(nil)
)

// wouldBlock is the error of Read when no bytes have arrived. crypto/tls returns a temporary
// net.Error as it is, keeps its partial record, and continues with the next Read. Callers compare
// it by identity.
type wouldBlock struct{}

var errWouldBlock error = wouldBlock{}

func (wouldBlock) Error() string   { return "tlsloop: no bytes yet" }
func (wouldBlock) Timeout() bool   { return false }
func (wouldBlock) Temporary() bool { return true }

// Read gives no byte of a second record, and never bytes together with an error.
func (p *pipe) Read(b []byte) (n int, err error) {
	s := (*session)(p)
	switch {
	case s.raw != nil && len(s.in) > 0: // from before it left the engine
		n = copy(b, s.in)
		s.frame.passed(b[:n])
		if s.in = s.in[n:]; len(s.in) == 0 {
			s.in = nil
		}
		return n, nil
	case s.raw != nil:
		n, err = s.raw.Read(b)
		s.frame.passed(b[:n])
		return n, err
	case !s.open:
		return s.hs.read(b)
	case len(s.in) == 0:
		return 0, errWouldBlock
	}
	n = s.frame.give(b, s.in)
	s.in = s.in[n:]
	return n, nil
}

// give copies as much of in to b as belongs to the record that has begun.
func (f *framing) give(b, in []byte) int {
	n := copy(b, in[:min(len(in), f.next())])
	f.passed(b[:n])
	return n
}

// Write queues a copy of everything and never fails for lack of room: an error would end the
// tls.Conn, and encoded bytes must be sent.
func (p *pipe) Write(b []byte) (int, error) {
	s := (*session)(p)
	switch {
	case s.raw != nil:
		return s.raw.Write(b)
	case !s.open:
		s.hs.out = append(s.hs.out, b...)
		s.hs.secrets.sent(b)
		return len(b), nil
	}
	if s.reading {
		s.answers += int32(len(b))
	}
	return s.wire.Write(b)
}

// Close is called by a tls.Conn that has left the engine. In the engine the handler closes the
// conn.
func (p *pipe) Close() error {
	if p.raw != nil {
		return p.raw.Close()
	}
	return nil
}

// CloseWrite ends the stream below, for callers that have sent a close_notify.
func (p *pipe) CloseWrite() error {
	if hc, ok := p.raw.(interface{ CloseWrite() error }); ok {
		return hc.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (p *pipe) LocalAddr() net.Addr {
	if p.raw != nil {
		return p.raw.LocalAddr()
	}
	return p.conn.LocalAddr()
}

func (p *pipe) RemoteAddr() net.Addr {
	if p.raw != nil {
		return p.raw.RemoteAddr()
	}
	return p.conn.RemoteAddr()
}

// NetConn is the connection below, whose options a caller may set; nil while a loop owns it.
func (p *pipe) NetConn() net.Conn { return p.raw }

// Deadlines are those of the connection below; on a loop the conn's timer is in their place.

func (p *pipe) SetDeadline(t time.Time) error {
	if p.raw != nil {
		return p.raw.SetDeadline(t)
	}
	return nil
}

func (p *pipe) SetReadDeadline(t time.Time) error {
	if p.raw != nil {
		return p.raw.SetReadDeadline(t)
	}
	return nil
}

// SetWriteDeadline is also called by the tls.Conn itself, after its close_notify, with a time that
// has passed: that must not drop what is queued.
func (p *pipe) SetWriteDeadline(t time.Time) error {
	if p.raw != nil {
		return p.raw.SetWriteDeadline(t)
	}
	return nil
}

// Lift implements myriad.Lifter: outer is the tls.Conn whose inside p is, or a detached.
func (p *pipe) Lift(outer net.Conn, h myriad.Handler) (net.Conn, myriad.Layer, myriad.Handler) {
	s := (*session)(p)
	raw := s.raw
	d, _ := outer.(*detached)
	if raw == nil || d == nil && outer != net.Conn(s.tls) || d != nil && !d.comesBack() {
		return outer, nil, h // not the conn that was made with it: let it be served from outside
	}
	s.raw = nil
	if d != nil {
		return raw, s, h
	}
	if s.tls.ConnectionState().HandshakeComplete {
		_ = raw.SetDeadline(time.Time{}) // those of net/http
		s.phase, s.open = established, true
		return raw, s, h
	}
	return raw, nil, &opener{kind: s.kind, session: s, pick: func(tls.ConnectionState) myriad.Handler { return h },
		heir: h}
}
