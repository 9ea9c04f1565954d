package hub

import (
	"fmt"
	"net/http"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A Door is a protocol by which clients, programs or operators use the server. It turns their bytes
// into operations on a session (operations.go and subscription.go) or on the Server, and
// publications into its own bytes. What is above the doors names no protocol.
//
// A door does the following for each client:
//
//   - It counts the connection against the limit of the client's address: by
//     Server.LimitConnections around its handler, or by Server.MayOpen.
//   - If the token comes with the request that opens the connection, the door calls
//     Server.AuthenticateRequest or Server.Authenticate, then Server.ConnectWait, then
//     Server.StartConnected. If the token comes later, the door calls Server.Start, and then
//     Session.Connect with the token. Until Connect has succeeded, Session.MustBeConnected returns
//     an error: the door calls it before every operation but Connect.
//   - After the start it calls Session.Introduce with what Hub.RequestInfo returns. Without that,
//     hooks do not know the client's transport, protocol and header.
//   - It calls Session.MaySubscribeNow before Subscribe, and Session.MayCommandNow before other
//     commands, such as History and Presence. Connect, AdmitAll and Publish count by themselves.
//   - An operation returns an Error, which the door sends as the answer, or an error with a
//     Disconnect, which the door passes to Session.DisconnectFor.
//   - When the connection has ended for any reason, the door calls Session.Ended once.
//
// A door belongs to one server. All doors of a server have at most 32 forms together; New
// returns an error if they have more.
type Door interface {
	// Forms are the ways in which the door writes to clients, all that it ever uses.
	Forms() []Form
	// Open prepares the door for its server, and returns what adds its paths to a mux: those that
	// clients use, and those for programs and operators. nil: there are none. New calls it once.
	Open(h *Hub) (clients, admin func(mux *http.ServeMux))
}

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

// A Shared is a message that many transports queue by reference, such as a *websocket.Prepared. Its
// maker releases it.
type Shared interface{ Release() }

// A Transport carries encoded messages to one client. Any goroutine may call its methods, also
// concurrently. The methods never block, and never call the session. When the connection has ended
// for any reason, the door calls Session.Ended once.
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
}

// checkForms returns an error if the doors have too many forms.
func checkForms(doors []Door) error {
	count := 0
	for _, d := range doors {
		count += len(d.Forms())
	}
	if count > maxForms {
		return fmt.Errorf("push: the doors in Config.Doors have %d forms, at most %d are allowed: leave out doors "+
			"that no client uses, or give a door fewer forms", count, maxForms)
	}
	return nil
}

// newForms returns the table of all forms. checkForms has bounded it.
func newForms(doors []Door) (table []formEntry) {
	for _, d := range doors {
		for _, f := range d.Forms() {
			payload, answered := f.Ping()
			table = append(table, formEntry{f, &Message{payload, f.Share(payload)}, answered})
		}
	}
	return table
}

// idOf returns the id of f, which a door must have listed.
func (h *Hub) idOf(f Form) formID {
	for i := range h.forms {
		if h.forms[i].Form == f {
			return formID(i)
		}
	}
	panic(fmt.Sprintf("push: the form %#v is in no door's list", f))
}

// An encoder encodes the message of each form on first use.
type encoder struct {
	hub  *Hub
	name string
	list []bus.Publication
	made [maxForms]*Message

	special *specialMessages // for members that get deltas; nil without one
}

func (e *encoder) message(id formID) *Message {
	m := e.made[id]
	if m == nil {
		m = e.hub.forms[id].message(e.name, e.list)
		e.made[id] = m
	}
	return m
}

func (f *formEntry) message(channel string, list []bus.Publication) *Message {
	payload := f.Publications(channel, list)
	return &Message{payload, f.Share(payload)}
}

func (e *encoder) release() {
	releaseAll(&e.made)
	if e.special != nil {
		releaseAll(&e.special.deltas)
		releaseAll(&e.special.wholes)
	}
}

func releaseAll(made *[maxForms]*Message) {
	for _, m := range made {
		if m != nil {
			m.Release()
		}
	}
}

// envelope estimates the bytes of a message besides its data, channel and user.
const envelope = 128

// EncodedSize estimates the size of list as a message.
func EncodedSize(channel string, list []bus.Publication) (size int) {
	for i := range list {
		size += envelope + len(channel) + len(list[i].User) + list[i].Size()
	}
	return size
}
