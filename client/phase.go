package client

import (
	"context"
	"errors"
	"os"
	"strings"
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

// An Error is why a request failed, and in which phase.
type Error struct {
	Phase Phase
	Addr  string // of the server, or of the proxy, with its port
	Err   error
}

func (e *Error) Error() string {
	return "client: " + e.Phase.String() + " " + e.Addr + ": " + strings.TrimPrefix(e.Err.Error(), "client: ")
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
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Is(target error) bool {
	return target == os.ErrDeadlineExceeded || target == context.DeadlineExceeded
}

var errHeaderTimeout = timeoutError("client: timeout awaiting response headers")

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
	errServerClosed = errors.New("client: the server closed the connection before it answered")
	errBodyClosed   = errors.New("client: the body was closed before its end")
	errKeepIdle     = errors.New("client: the idle connection is not kept")
)
