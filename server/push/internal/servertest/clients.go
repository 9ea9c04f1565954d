package servertest

import (
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/doors/centrifuge"
	"github.com/myriad-go/myriad/server/push/hub"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
)

// A Stream records what the reader of a response that does not end would read.
type Stream struct {
	mu     sync.Mutex
	out    strings.Builder
	queued int // bytes that the peer seems not to have read
	closed bool
	ended  func()

	freeze func(dst []byte) ([]byte, error)
	moved  func()
}

// OnFreeze implements hub.MovingStream.
func (f *Stream) OnFreeze(freeze func(dst []byte) ([]byte, error), moved func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.freeze, f.moved = freeze, moved
}

// Freeze returns what the server writes down for the stream, which moves to another server. It is
// not ok if the stream cannot move.
func (f *Stream) Freeze() (state []byte, ok bool) {
	f.mu.Lock()
	freeze := f.freeze
	f.mu.Unlock()
	if freeze == nil {
		return nil, false
	}
	state, err := freeze(nil)
	return state, err == nil
}

// Move ends the stream here, because it goes on in another server.
func (f *Stream) Move() {
	f.mu.Lock()
	moved := f.moved
	f.closed, f.ended = true, nil
	f.mu.Unlock()
	moved()
}

// Send implements hub.Transport.
func (f *Stream) Send(m *hub.Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return io.ErrClosedPipe
	}
	f.out.Write(m.Payload)
	return nil
}

// Queued implements hub.Transport.
func (f *Stream) Queued() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.queued
}

// Remote implements hub.Transport.
func (f *Stream) Remote() string { return "192.0.2.1:1234" }

// Close calls OnClose's function as web does: not from within Close.
func (f *Stream) Close(push.Disconnect) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed && f.ended != nil {
		go f.ended()
	}
	f.closed = true
}

// OnClose implements hub.ResponseStream.
func (f *Stream) OnClose(g func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = g
	if f.closed {
		go g()
	}
}

// Take returns the bytes sent since the last call.
func (f *Stream) Take() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.out.String()
	f.out.Reset()
	return out
}

// TakeEvent returns the first event, without the empty line at its end, and keeps what follows.
func (f *Stream) TakeEvent() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	first, rest, _ := strings.Cut(f.out.String(), "\n\n")
	f.out.Reset()
	f.out.WriteString(rest)
	return first
}

// SetQueued makes so many bytes wait for the peer.
func (f *Stream) SetQueued(bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queued = bytes
}

// IsClosed reports whether the server has ended the stream.
func (f *Stream) IsClosed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// A Transport is the transport of a client of which a test is the peer.
type Transport struct {
	pushtest.Peer
	Session *hub.Session
}

// Send implements hub.Transport.
func (f *Transport) Send(m *hub.Message) error {
	err := f.Receive(m.Payload)
	if err == pushtest.ErrFull {
		return hub.ErrQueueFull
	}
	return err
}

// Frame takes a message from the peer.
func (f *Transport) Frame(p []byte) { centrifuge.RunMessage(f.Session, p) }

// Asks sends a command, and checks the answer.
func (f *Transport) Asks(t *testing.T, what, command, answer string) {
	t.Helper()
	f.Frame([]byte(command))
	f.Want(t, what, answer)
}

// Leave ends the connection from the peer's side.
func (f *Transport) Leave() {
	if f.HangUp() {
		f.Session.Ended()
	}
}
