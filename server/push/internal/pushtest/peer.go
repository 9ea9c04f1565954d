package pushtest

import (
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/myriad-go/myriad/server/push/answer"
)

// ErrFull is returned by Peer.Receive for a peer that is Full.
var ErrFull = errors.New("pushtest: the queue is full")

// A Peer is the other end of a connection. It records what it receives, as one message a call of
// Receive. A transport of a test is a Peer with the method Send.
type Peer struct {
	mu     sync.Mutex
	sent   []string
	unread []string // sent while Stuck

	// These are set before the peer receives, or by the test's one goroutine.
	Stuck bool // the peer does not read
	Full  bool // the queue has no room for anything

	Bytes  int                // that are queued while Stuck
	Max    int                // the maximum of Bytes
	Closed *answer.Disconnect // why the server has closed the connection; nil: it has not
	Hung   bool               // HangUp was called
}

// Receive takes a message, or returns ErrFull, or net.ErrClosed behind HangUp.
func (p *Peer) Receive(payload []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.Hung:
		return net.ErrClosed
	case p.Full:
		return ErrFull
	case p.Stuck:
		p.Bytes += len(payload)
		p.Max = max(p.Max, p.Bytes)
		p.unread = append(p.unread, string(payload))
		return nil
	}
	p.sent = append(p.sent, string(payload))
	return nil
}

// Queued returns the bytes that the peer has not read.
func (p *Peer) Queued() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Bytes
}

// SetQueued makes so many bytes wait for the peer.
func (p *Peer) SetQueued(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Bytes = bytes
}

// Remote returns the peer's address.
func (p *Peer) Remote() string { return "192.0.2.1:1234" }

// Close notes why the server closes the connection.
func (p *Peer) Close(why answer.Disconnect) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Closed == nil {
		p.Closed = &why
	}
}

// Stick makes the peer stop reading.
func (p *Peer) Stick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Stuck = true
}

// ReadOn has a stuck peer read what has been queued for it.
func (p *Peer) ReadOn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = append(p.sent, p.unread...)
	p.Stuck, p.Bytes, p.unread = false, 0, nil
}

// HangUp ends the connection from the peer's side. It returns false if it was called before; else
// the caller tells the session.
func (p *Peer) HangUp() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.Hung
	p.Hung, p.Bytes = true, 0
	return first
}

// End returns why the server has closed the connection, and whether the peer has hung up.
func (p *Peer) End() (closed *answer.Disconnect, hung bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Closed, p.Hung
}

// Take returns the messages that the peer has received since the last call.
func (p *Peer) Take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := p.sent
	p.sent = nil
	return sent
}

// Want checks that the peer has received exactly these messages.
func (p *Peer) Want(t testing.TB, what string, messages ...string) {
	t.Helper()
	got := p.Take()
	if !slices.Equal(got, messages) {
		t.Errorf("%s: received\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(messages, "\n  "))
	}
}

// IsClosed reports whether the server has closed the connection.
func (p *Peer) IsClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Closed != nil
}

// WantClosed checks that the server has closed the connection for that reason.
func (p *Peer) WantClosed(t testing.TB, what string, why answer.Disconnect) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.Closed == nil:
		t.Errorf("%s: still open, want %v", what, why)
	case *p.Closed != why:
		t.Errorf("%s: closed with %v, want %v", what, *p.Closed, why)
	}
}

// WantOpen checks that the server has not closed the connection.
func (p *Peer) WantOpen(t testing.TB, what string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Closed != nil {
		t.Errorf("%s: closed with %v", what, *p.Closed)
	}
}
