package push

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// frame runs one message of a client: commands of the Centrifuge protocol, one to a line. The
// transport makes one call at a time. frame does not keep p.
func (s *session) frame(p []byte) {
	if s.closing.Load() {
		return
	}
	b := batches.Get().(*batch)
	b.s = s
	err := b.runAll(p)
	b.flush()
	b.s = nil
	batches.Put(b)
	if err != nil {
		s.refuse(err)
	}
}

// refuse disconnects with the reason in err, and logs the whole error.
func (s *session) refuse(err error) {
	reason := centrifuge.ServerError
	errors.As(err, &reason)
	why := refusedFrame
	switch {
	case errors.Is(err, errNoToken):
		why = refusedNoToken
	case reason == centrifuge.InvalidToken:
		why = refusedToken
	}
	s.refused(why, err)
	s.disconnect(reason)
}

// refused counts and logs what the client may not do.
func (s *session) refused(why refusal, err error) {
	s.node.refused(why, s.t.remote(), "client", s.id.String(), "user", s.user(), "error", oneLine(err))
}

// A batch collects the replies to one frame, so that they leave in one frame.
type batch struct {
	s   *session
	out []byte
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// runAll runs the commands of a frame until one ends the connection. The error has the reason.
func (b *batch) runAll(p []byte) error {
	for count := 1; ; count++ {
		if count > b.s.node.limits.Commands {
			return errors.Join(centrifuge.BadRequest, errTooManyCommands)
		}
		n, c, err := centrifuge.Parse(p)
		if err != nil {
			return errors.Join(centrifuge.BadRequest, err)
		}
		if err := b.run(&c); err != nil {
			return err
		}
		p = p[n:]
		if len(p) == 0 || b.s.isRefused() {
			return nil // the rest of the frame relies on the connect that was refused
		}
	}
}

var (
	errTooManyCommands = errors.New("push: more commands in a frame than Limits.Commands")
	errNotConnected    = errors.New("push: the first command must be connect")
	errConnectedTwice  = errors.New("push: connect may be sent once")
	errRefused         = errors.New("push: the client sends commands after a refused connect")
	errNoToken         = errors.New("push: connect has no token, and the server requires one")
	errPong            = errors.New("push: a pong without a ping")
	errNoID            = errors.New("push: a command without an id")
	errNoChannel       = errors.New("push: a command without a channel")
	errUnknownMethod   = errors.New("push: a command without a method of the protocol")
	errOtherUser       = errors.New("push: a refresh with the token of another user")
)

func (s *session) isRefused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stage == stageRefused
}

// run answers one command, or returns why the connection must end. It makes the checks in the order
// of a centrifuge server.
func (b *batch) run(c *centrifuge.Command) error {
	if c.Connect != nil && c.ID != 0 {
		return b.connect(c)
	}
	switch err := b.s.mustBeConnected(); {
	case err != nil:
		return errors.Join(centrifuge.BadRequest, err)
	case c.IsPong():
		return b.s.pong()
	case c.ID == 0 && c.Send == nil:
		return errors.Join(centrifuge.BadRequest, errNoID)
	}
	switch c.Method() {
	case centrifuge.Subscribe:
		return b.subscribe(c)
	case centrifuge.Unsubscribe:
		return b.unsubscribe(c)
	case centrifuge.Publish:
		return b.publish(c)
	case centrifuge.Refresh:
		return b.refresh(c)
	case centrifuge.Ping:
		b.done(c, centrifuge.Ping)
		return nil
	case centrifuge.Send:
		return centrifuge.NotAvailable // the protocol has no reply for this
	case centrifuge.RPC:
		b.fail(c, centrifuge.ErrMethodNotFound)
		return nil
	case centrifuge.SubRefresh:
		return b.subRefresh(c)
	case centrifuge.History:
		return b.history(c)
	case centrifuge.Presence:
		return b.presence(c, c.Presence.Channel)
	case centrifuge.PresenceStats:
		return b.presence(c, c.PresenceStats.Channel)
	case centrifuge.None:
		return errors.Join(centrifuge.BadRequest, errUnknownMethod)
	}
	b.fail(c, centrifuge.ErrNotAvailable)
	return nil
}

func (s *session) mustBeConnected() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.stage {
	case stageNew:
		return errNotConnected
	case stageRefused:
		return errRefused
	}
	return nil
}

func (b *batch) connect(c *centrifuge.Command) error {
	s := b.s
	if s.isConnected() {
		return errors.Join(centrifuge.BadRequest, errConnectedTwice)
	}
	if s.isRefused() {
		return errors.Join(centrifuge.BadRequest, errRefused)
	}
	g, err := s.node.authenticate(c.Connect.Token)
	switch {
	case errors.Is(err, errTokenExpired):
		s.refuseConnect()
		s.refused(refusedExpired, err)
		b.fail(c, centrifuge.ErrTokenExpired)
		return nil
	case errors.Is(err, errNoToken):
		return errors.Join(centrifuge.BadRequest, err) // as a centrifuge server that requires a token
	case err != nil:
		return errors.Join(centrifuge.InvalidToken, err)
	}
	s.mu.Lock()
	s.setConnected(g)
	s.mu.Unlock()
	b.out = centrifuge.AppendConnect(b.newLine(), c.ID, centrifuge.ConnectResult{
		Client: s.id.String(), Version: s.node.version,
		Expires: !g.ends.IsZero(), TTL: s.node.ttl(g.ends),
		Ping: uint32(s.node.timing.Ping / time.Second), Pong: true,
	})
	return nil
}

func (s *session) isConnected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stage == stageConnected
}

func (s *session) refuseConnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stage = stageRefused
}

func (s *session) pong() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pongBy == 0 {
		return errors.Join(centrifuge.BadRequest, errPong)
	}
	s.pongBy = 0
	return nil // a tick for the old deadline finds nothing due
}

func (b *batch) unsubscribe(c *centrifuge.Command) error {
	name := c.Unsubscribe.Channel
	if name == "" {
		return errors.Join(centrifuge.BadRequest, errNoChannel)
	}
	b.s.unsubscribe(name)
	b.done(c, centrifuge.Unsubscribe)
	return nil
}

func (b *batch) publish(c *centrifuge.Command) error {
	s, p := b.s, c.Publish
	if p.Channel == "" {
		return errors.Join(centrifuge.BadRequest, errNoChannel)
	}
	if !s.mayPublish(p.Channel) {
		b.fail(c, centrifuge.ErrPermissionDenied)
		return nil
	}
	// Replies to earlier commands go first: the client may receive its own publication.
	b.flush()
	_, err := s.node.publish(context.Background(), p.Channel, Publication{Data: p.Data, Client: s.id.String(),
		User: s.user()})
	if !b.failed(c, err) {
		b.done(c, centrifuge.Publish)
	}
	return nil
}

// refresh replaces the connection's token, and with it the connection's expiry.
func (b *batch) refresh(c *centrifuge.Command) error {
	s := b.s
	if s.node.tokens == nil {
		b.fail(c, centrifuge.ErrNotAvailable)
		return nil
	}
	g, err := s.node.authenticate(c.Refresh.Token)
	switch {
	case errors.Is(err, errTokenExpired):
		return errors.Join(centrifuge.Expired, err)
	case errors.Is(err, errNoToken):
		return errors.Join(centrifuge.BadRequest, err)
	case err != nil:
		return errors.Join(centrifuge.InvalidToken, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.user != s.user() {
		return errors.Join(centrifuge.InvalidToken, errOtherUser)
	}
	if s.stage == stageConnected {
		s.expireAt(g.ends)
		s.node.wheel.set(s, s.deadline())
	}
	b.out = centrifuge.AppendRefresh(b.newLine(), c.ID, s.id.String(), s.node.ttl(g.ends))
	return nil
}

// failed answers c with err if err is not nil, and reports whether it did.
func (b *batch) failed(c *centrifuge.Command, err error) bool {
	if err == nil {
		return false
	}
	reply := centrifuge.ErrInternal
	if !errors.As(err, &reply) {
		b.s.node.log.Error("push: a command failed", "client", b.s.id.String(), "method", c.Method().String(), "error",
			err)
	}
	b.fail(c, reply)
	return true
}

func (b *batch) fail(c *centrifuge.Command, e centrifuge.Error) {
	if e == centrifuge.ErrPermissionDenied {
		b.s.refused(refusedPermission, fmt.Errorf("%v: %w", c.Method(), e))
	}
	b.out = centrifuge.AppendError(b.newLine(), c.ID, e)
}

func (b *batch) done(c *centrifuge.Command, m centrifuge.Method) {
	b.out = centrifuge.AppendDone(b.newLine(), c.ID, m)
}

// newLine returns the buffer to which the next reply is appended.
func (b *batch) newLine() []byte {
	if len(b.out) == 0 {
		return b.out
	}
	return append(b.out, '\n')
}

// flush sends the replies so far. A client that does not read its replies is treated as slow.
func (b *batch) flush() {
	if len(b.out) == 0 {
		return
	}
	if b.s.offer(&message{payload: b.out}) == offerFull {
		b.s.tooSlow("", len(b.out))
	}
	b.out = b.out[:0]
}

// ttl returns the whole seconds until ends, at most a year.
func (n *node) ttl(ends time.Time) uint32 {
	const year = 365 * 24 * 3600
	left := math.Ceil(ends.Sub(n.clock.Now()).Seconds())
	return uint32(min(max(left, 0), year))
}
