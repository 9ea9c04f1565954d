package push

import (
	"errors"
	"fmt"
	"sync"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// This file runs the commands of one message of the Centrifuge protocol, and sends their replies in
// one message. centrifugecommands.go has the commands.

var (
	errTooManyCommands = errors.New("push: more commands in a frame than Limits.Commands")
	errNoID            = errors.New("push: a command without an id")
	errNoChannel       = errors.New("push: a command without a channel")
	errUnknownMethod   = errors.New("push: a command without a method of the protocol")
)

// runMessage runs one message of a client.
func runMessage(s *Session, p []byte) {
	if s.Form().(centrifugeForm).uni {
		runConnectRequest(s, p)
		return
	}
	runCommands(s, p)
}

// runCommands runs one message of a client that sends commands. The transport makes one call at a
// time. runCommands does not keep p.
func runCommands(s *Session, p []byte) {
	runBatch(s, func(b *batch) error { return b.runAll(p) })
}

// runConnectRequest runs the one message of a client that only receives: a connect request. Later
// messages are pongs, or are ignored.
func runConnectRequest(s *Session, p []byte) {
	if s.IsConnected() {
		return
	}
	runBatch(s, func(b *batch) error {
		request, err := b.form.codec.ParseConnect(p)
		if err != nil {
			return errors.Join(DisconnectBadRequest, err)
		}
		err = b.connect(&centrifuge.Command{ID: 1, Connect: &request})
		if err == nil && b.s.IsRefused() {
			b.s.Disconnect(endingOf(b.refusal))
		}
		return err
	})
}

// endingOf returns how a client is told of an error that has no replies. The client comes back unless
// it may not be here, as with a centrifuge server.
func endingOf(e Error) Disconnect {
	switch e.Code {
	case ErrTokenExpired.Code:
		return DisconnectExpired
	case ErrTooManyRequests.Code:
		return DisconnectTooManyRequests
	case ErrPermissionDenied.Code:
		return DisconnectPermissionDenied
	}
	return DisconnectServerError
}

func runBatch(s *Session, run func(*batch) error) {
	if s.IsClosing() {
		return
	}
	b := batches.Get().(*batch)
	b.s, b.form, b.refusal = s, s.Form().(centrifugeForm), Error{}
	err := run(b)
	b.flush()
	b.s = nil
	batches.Put(b)
	if err != nil {
		s.Refuse(err)
	}
}

// A batch collects the replies to one message, so that they leave in one message.
type batch struct {
	s    *Session
	form centrifugeForm
	out  []byte

	refusal Error // of connect, for a client that gets no replies
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// runAll runs the commands of a message until one ends the connection. The error has the reason.
func (b *batch) runAll(p []byte) error {
	for count := 1; ; count++ {
		if count > b.s.Server().Limits().Commands {
			return errors.Join(DisconnectBadRequest, errTooManyCommands)
		}
		n, c, err := b.form.codec.Parse(p)
		if err != nil {
			return errors.Join(DisconnectBadRequest, err)
		}
		if err := b.run(&c); err != nil {
			return err
		}
		p = p[n:]
		if len(p) == 0 || b.s.IsRefused() {
			return nil // the rest of the message relies on the connect that was refused
		}
	}
}

// run answers one command, or returns why the connection must end. It makes the checks in the order
// of a centrifuge server.
func (b *batch) run(c *centrifuge.Command) error {
	if c.Connect != nil && c.ID != 0 {
		return b.connect(c)
	}
	switch err := b.s.MustBeConnected(); {
	case err != nil:
		return err
	case c.IsPong():
		return b.s.Pong()
	case c.ID == 0 && c.Send == nil:
		return errors.Join(DisconnectBadRequest, errNoID)
	}
	if refused, err := b.aboveRate(c); refused {
		return err
	}
	switch c.Method() {
	case centrifuge.Ping:
		b.done(c, centrifuge.Ping)
		return nil
	case centrifuge.Send:
		return b.s.Message(c.Send.Data) // the protocol has no reply for this
	case centrifuge.RPC:
		return b.rpc(c)
	case centrifuge.Refresh:
		return b.refresh(c)
	case centrifuge.None:
		return errors.Join(DisconnectBadRequest, errUnknownMethod)
	}
	return b.runInChannel(c)
}

// aboveRate refuses a command above Rates.UserCommands or Rates.AddressCommands. Subscribe and
// publish have limits of their own; the others cost nothing that lasts.
func (b *batch) aboveRate(c *centrifuge.Command) (refused bool, _ error) {
	m := c.Method()
	switch m {
	case centrifuge.Send, centrifuge.RPC, centrifuge.Refresh, centrifuge.SubRefresh, centrifuge.History,
		centrifuge.Presence, centrifuge.PresenceStats:
	default:
		return false, nil
	}
	err := b.s.MayCommandNow(m.String())
	if err == nil || m == centrifuge.Send { // which has no reply
		return err != nil, nil
	}
	return true, b.failed(c, err)
}

// runInChannel answers a command that names a channel.
func (b *batch) runInChannel(c *centrifuge.Command) error {
	switch c.Method() {
	case centrifuge.Subscribe:
		return b.subscribe(c)
	case centrifuge.Unsubscribe:
		return b.unsubscribe(c)
	case centrifuge.Publish:
		return b.publish(c)
	case centrifuge.SubRefresh:
		return b.subRefresh(c)
	case centrifuge.History:
		return b.history(c)
	case centrifuge.Presence:
		return b.presence(c)
	case centrifuge.PresenceStats:
		return b.presenceStats(c)
	}
	b.fail(c, ErrNotAvailable)
	return nil
}

// failed answers c with err. If err ends the connection, failed returns it.
func (b *batch) failed(c *centrifuge.Command, err error) error {
	if err == nil {
		return nil
	}
	if reason := new(Disconnect); errors.As(err, reason) {
		return err
	}
	answer := ErrInternal
	if !errors.As(err, &answer) {
		b.s.Server().Logger().Error("push: a command failed", "client", b.s.ID(), "method", c.Method().String(), "error",
			err)
	}
	if answer == ErrPermissionDenied && !b.form.uni && !IsHookRefusal(err) {
		b.s.Refused(RefusedPermission, fmt.Errorf("%v %q: %w", c.Method(),
			c.Channel(), err))
	}
	b.fail(c, answer)
	return nil
}

func (b *batch) fail(c *centrifuge.Command, e Error) {
	if b.form.uni {
		b.refusal = e // the ending follows
		return
	}
	answer := centrifuge.Error(e)
	b.reply(&centrifuge.Reply{ID: c.ID, Error: &answer})
}

func (b *batch) done(c *centrifuge.Command, m centrifuge.Method) {
	b.reply(&centrifuge.Reply{ID: c.ID, Method: m})
}

func (b *batch) reply(r *centrifuge.Reply) { b.out = b.form.codec.AppendReply(b.out, r) }

// flush sends the replies so far. A client that does not read its replies is treated as slow.
func (b *batch) flush() {
	if len(b.out) == 0 {
		return
	}
	message := Message{Payload: b.form.frame(b.out)}
	if b.s.Offer(&message) == OfferFull {
		b.s.TooSlow("", len(message.Payload))
	}
	b.out = b.out[:0]
}
