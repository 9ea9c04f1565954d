package hub

import (
	"errors"
	"fmt"

	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/bus"
)

// A Form is one way in which a door writes to clients. A door has a form for each combination that
// its clients may choose, such as a codec and a framing. A form is a comparable value without
// state. Publications are encoded once for each form that a channel's subscribers use.
type Form interface {
	// Kind says for operators and hooks how clients of this form have connected: such as "events"
	// and "json", or "redis" and "resp3".
	Kind() (transport, protocol string)
	// Publications encodes list as one message.
	Publications(channel string, list []bus.Publication) []byte
	// Notice encodes that a client has joined or left. nil: clients of this form get no notices.
	Notice(channel string, n bus.Notice) []byte
	// Subscribed encodes that the server has made a subscription. nil: the form cannot say so, and
	// the server makes none.
	Subscribed(channel string, hello Welcome) []byte
	// Unsubscribed encodes that the server has ended a subscription. nil: the form cannot say so,
	// and the server ends the connection.
	Unsubscribed(channel string, why answer.Unsubscription) []byte
	// Refreshed encodes that the connection ends in ttl seconds, or never if ttl is 0. nil: clients
	// of this form are not told.
	Refreshed(ttl uint32) []byte
	// Ping returns the message that keeps a silent connection open. If answered is set, clients
	// answer it, or are disconnected; such clients can also bring new tokens. nil: the server calls
	// Transport.Send with an empty message, which the transport ignores.
	Ping() (payload []byte, answered bool)
	// Share wraps payload so that this form's transports can queue it without a copy. nil: they
	// copy it.
	Share(payload []byte) Shared
}

// A QuietForm is embedded in forms whose clients are told nothing but publications. When a
// subscription ends, so does their connection.
type QuietForm struct{}

func (QuietForm) Notice(string, bus.Notice) []byte { return nil }

func (QuietForm) Subscribed(string, Welcome) []byte { return nil }

func (QuietForm) Unsubscribed(string, answer.Unsubscription) []byte { return nil }

func (QuietForm) Refreshed(uint32) []byte { return nil }

// A OneWayForm is a form that says by OneWay whether its clients only receive, after they have
// connected. The one effect is that Session.SessionID returns an id for them.
type OneWayForm interface {
	Form
	// OneWay reports whether clients of this form only receive.
	OneWay() bool
}

// A DeltaForm is a form whose clients can apply deltas.
type DeltaForm interface {
	Form
	// Deltas encodes list as one message. Each publication may be a delta to the one before it, the
	// first one to base; nil: it is sent whole.
	Deltas(channel string, list []bus.Publication, base *bus.Publication) []byte
}

// A Shared is a message that many transports queue by reference, such as a *websocket.Prepared. Its
// maker releases it.
type Shared interface{ Release() }

// A Transport carries encoded messages to one client. Any goroutine may call its methods, also
// concurrently. The methods never block, and never call the session. When the connection has ended
// for any reason, the door calls Session.Ended once.
//
// Its queue has room for Limits.Queue and [QueueSlack] bytes together. Session.Offer looks at
// Queued before it calls Send, and passes no message on that would not fit into Limits.Queue,
// unless nothing is queued. The slack is for the framing, and for messages of other goroutines
// between the look and the call.
type Transport interface {
	// Send queues all of m or nothing, in the order of the calls. It copies m's payload, or queues
	// m's shared form by reference. ErrQueueFull means that the transport's queue is full. Any
	// other error means that the connection has ended.
	Send(m *Message) error
	// Queued returns the bytes that the kernel has not taken yet.
	Queued() int
	// Remote returns the peer's address for the log, or "" if the transport does not know it.
	Remote() string
	// Close sends what is queued and the reason, as far as the protocol has a way to say it, then
	// ends the connection. For DisconnectSlow it may drop what is queued. A peer that does not read
	// delays the end for a bounded time only. Later calls have no effect.
	Close(why answer.Disconnect)
}

// ErrQueueFull is returned by Transport.Send when the transport's queue is full.
var ErrQueueFull = errors.New("push: the transport's queue is full")

// An AnswerTimer is a Transport whose connection knows when a message has left, and when it has
// read what the client has sent. So a client is not taken for dead while its ping, or its answer,
// waits for this node. The wheel judges clients of other transports: they have the time for a pong
// twice if the node is late.
type AnswerTimer interface {
	Transport
	// AwaitAnswer is called when a ping has been queued. If Answered is not called within
	// Timing.Pong from when the kernel has been offered the ping, the door calls Session.NoAnswer.
	// Before that it passes on what the client has sent by then. If the kernel refuses the ping,
	// because the client does not read, the client has twice that time. A call before Answered does
	// nothing. It reports false if it cannot do so.
	AwaitAnswer() bool
	Answered()
}

// A Message is encoded once for each form, for any number of subscribers.
type Message struct {
	Payload []byte // a receiver of the message must not keep it
	Shared  Shared // nil for a message to one client
}

// Release releases the shared form, if there is one. Its maker calls it once, when the message is
// queued for all of its receivers.
func (m *Message) Release() {
	if m.Shared != nil {
		m.Shared.Release()
	}
}

// A formID is a form's index in a node's table.
type formID uint8

// maxForms bounds how many forms all doors have together. Door states it.
const maxForms = 32

// A formEntry is a form with what all its clients share.
type formEntry struct {
	Form
	pings    *Message
	answered bool
	mover    StreamMover // of clients that read one long response; nil: they do not move
}

// A formTable has all forms, by their ids.
type formTable []formEntry

// checkForms returns an error if there are too many forms.
func checkForms(forms []Form) error {
	if len(forms) > maxForms {
		return fmt.Errorf("push: the doors in Config.Doors have %d forms, at most %d are allowed: leave out doors "+
			"that no client uses, or give a door fewer forms", len(forms), maxForms)
	}
	return nil
}

// newForms returns the table of forms. checkForms has bounded it.
func newForms(forms []Form) (table formTable) {
	for _, f := range forms {
		payload, answered := f.Ping()
		table = append(table, formEntry{Form: f, pings: &Message{payload, f.Share(payload)}, answered: answered})
	}
	return table
}

// idOf returns the id of f, which a door must have listed.
func (t formTable) idOf(f Form) formID {
	for i := range t {
		if t[i].Form == f {
			return formID(i)
		}
	}
	panic(fmt.Sprintf("push: the form %#v is in no door's list", f))
}
