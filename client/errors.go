package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/mux"
)

// A Phase is how far a request has come.
type Phase uint8

const (
	Queued  Phase = iota // it waits for a connection
	Dialing              // a connection is being made for it: names, connect, proxy, TLS
	Sent                 // it has a connection; it is being written, or waits for the response
	Head                 // the first byte of the response has come
	Body                 // the response has been returned, its body is coming
	Done                 // all of it is over
)

var phaseNames = [...]string{"queued", "dialing", "sent", "head", "body", "done"}

// String is the phase's name in lower case.
func (p Phase) String() string { return phaseNames[p] }

// doing says in an error's text what the call was doing in each phase. An address follows.
var doing = [...]string{"waiting for a connection to", "connecting to", "waiting for the head from",
	"reading the head from", "reading the body from", "behind the end of a response from"}

// An Error is why a request of Do or of a Group failed, and in which phase. RoundTrip and its
// bodies return Err itself, as http.Transport does.
type Error struct {
	Phase Phase
	Addr  string // of the server, or of the proxy while that is dialled, with its port
	Err   error
}

func (e *Error) Error() string {
	return "client: " + doing[e.Phase] + " " + e.Addr + ": " + reason(e.Err)
}

// reason is the text of a cause without the addresses of a *net.OpError, which Error.Addr names.
func reason(err error) string {
	if op, ok := err.(*net.OpError); ok && op.Err != nil {
		return op.Op + ": " + reason(op.Err)
	}
	text := err.Error()
	for _, prefix := range [...]string{"client: ", "net/http: ", "http: "} {
		if rest, cut := strings.CutPrefix(text, prefix); cut {
			return rest
		}
	}
	return text
}

// Unwrap gives Err.
func (e *Error) Unwrap() error { return e.Err }

// Timeout reports whether a limit of time was exceeded, as net.Error has it.
func (e *Error) Timeout() bool {
	if errors.Is(e.Err, os.ErrDeadlineExceeded) || errors.Is(e.Err, context.DeadlineExceeded) {
		return true
	}
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](e.Err)
	return ok && t.Timeout()
}

// Temporary is there for net.Error.
func (e *Error) Temporary() bool { return e.Timeout() }

// A timeoutError names the limit that was exceeded.
type timeoutError string

func (e timeoutError) Error() string { return string(e) }

// Timeout is that of net.Error.
func (timeoutError) Timeout() bool { return true }

// Temporary is that of net.Error, as for the timeouts of net/http.
func (timeoutError) Temporary() bool { return true }

// Is makes it one of packages os and context, too.
func (timeoutError) Is(target error) bool {
	return target == os.ErrDeadlineExceeded || target == context.DeadlineExceeded
}

// Errors that http.Transport has too are in its words, because programs look for them.
const (
	errHeaderTimeout    = timeoutError("net/http: timeout awaiting response headers")
	errHeaderTimeout2   = timeoutError("http2: timeout awaiting response headers") // over HTTP/2
	errHandshakeTimeout = timeoutError("net/http: TLS handshake timeout")
)

// ErrQueueFull says that Transport.MaxQueued requests wait for a connection already.
var ErrQueueFull = errors.New("client: too many requests wait for a connection (Transport.MaxQueued)")

// ErrUnsolicited is for a server that sends bytes when it has not been asked, or more than it has
// announced.
var ErrUnsolicited = errors.New("client: the server sent bytes that belong to no response")

// ErrInterim is for a server whose interim responses (1xx) are more than MaxResponseHeaderBytes.
var ErrInterim = errors.New("client: too many 1xx responses (Transport.MaxResponseHeaderBytes)")

// ErrBodyTooLarge says that a compressed body is larger than Transport.MaxUncompressedBytes.
var ErrBodyTooLarge = errors.New("client: the uncompressed body is too large (Transport.MaxUncompressedBytes)")

var (
	errCanceled      = errors.New("net/http: request canceled")
	errCanceledEarly = errors.New("net/http: request canceled while waiting for connection")
	errReadClosed    = errors.New("http: read on closed response body")
	errOnBodyTwice   = errors.New("client: OnBody was called before for this response")
	errBodyClosed    = errors.New("client: the body was closed before its end")
	errKeepIdle      = errors.New("client: the idle connection is not kept")
	errAbandoned     = errors.New("client: the connection is not needed any more")
)

// closedError is why a connection ended, for what it carried. An orderly end is an io.EOF before a
// response, and io.ErrUnexpectedEOF within one. What the system says is a *net.OpError, as in
// net/http.
func closedError(c *myriad.Conn, err error, within bool) error {
	switch {
	case (err == nil || err == io.EOF) && within:
		return io.ErrUnexpectedEOF
	case err == nil:
		return io.EOF
	}
	number, ok := err.(syscall.Errno)
	if !ok {
		return err
	}
	op := "read"
	if number == syscall.EPIPE {
		op = "write"
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(),
		Err: os.NewSyscallError(op, number)}
}

// asRead gives an error of the system the form that it has in net/http, before a connection stands.
func asRead(err error) error {
	if number, ok := err.(syscall.Errno); ok {
		return &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", number)}
	}
	return err
}

// A streamError is why a stream or a connection of HTTP/2 has ended, in the words of net/http:
// programs take the code out of them.
type streamError struct{ frame *h2.Error }

func (e streamError) Error() string {
	reason, code, id := e.frame.Reason, e.frame.Code, e.frame.Stream
	if reason == mux.ResetByPeer {
		reason = "received from peer"
	}
	if id == 0 {
		return fmt.Sprintf("connection error: %v: %s", code, reason)
	}
	return fmt.Sprintf("stream error: stream ID %d; %v; %s", id, code, reason)
}

// Unwrap gives the error of the frame, and by that its cause.
func (e streamError) Unwrap() error { return e.frame }

// dialError is the error of the engine's dial in the form that package net gives it. Of several
// addresses it is that of the first.
func dialError(err error) error {
	if attempt, ok := errors.AsType[*net.OpError](err); ok {
		return attempt
	}
	failed := &net.OpError{Op: "dial", Net: "tcp", Err: err}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		failed.Err = dns
	} else if addr, ok := errors.AsType[*net.AddrError](err); ok { // such as an invalid port
		failed.Err = addr
	}
	return failed
}

// figuresKey is the engine's key for the figures of its clients.
type figuresKey struct{}

// figures count the calls of an engine's transports by phase, those that are done excepted.
type figures struct{ calls [Done]atomic.Int64 }

func newFigures() any { return new(figures) }

func (f *figures) add(p Phase)    { f.calls[p].Add(1) }
func (f *figures) remove(p Phase) { f.calls[p].Add(-1) }

func (f *figures) move(from, to Phase) {
	f.remove(from)
	f.add(to)
}

// Figures is for package debug.
func (f *figures) Figures() myriad.Figures {
	all := myriad.Figures{Title: "client: requests by phase"}
	for p := range Done {
		all.Counts = append(all.Counts, myriad.Count{Name: p.String(), Count: f.calls[p].Load()})
	}
	return all
}
