package hub

import (
	"fmt"
	"net/http"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A Door is a protocol by which clients, programs or operators use the server. It turns their bytes
// into operations on a session (operations.go and subscription.go) or on the Hub, and publications
// into its own bytes. What is above the doors names no protocol.
//
// A door does the following for each client:
//
//   - It counts the connection against the limit of the client's address: by Hub.LimitConnections
//     around its handler, or by Hub.MayOpen.
//   - If the token comes with the request that opens the connection, the door calls
//     Hub.AdmitRequest, and then Hub.ServeStream or Hub.StartConnected. Without a request it calls
//     Hub.Authenticate, Hub.ConnectWait and Hub.StartConnected. If the token comes later, the door
//     calls Hub.Start, and then Session.Connect with the token. Until Connect has succeeded,
//     Session.MustBeConnected returns an error: the door calls it before every operation but
//     Connect.
//   - It calls Session.MaySubscribeNow before Subscribe, and Session.MayCommandNow before other
//     commands, such as History and Presence. Connect, AdmitAll and Publish count by themselves.
//   - An operation returns an Error, which the door sends as the answer, or an error with a
//     Disconnect, which the door passes to Session.DisconnectFor. [answer.Refuse] answers an HTTP
//     request with either.
//   - Its replies take the same way as publications: Session.Offer, so that Limits.Queue bounds both.
//     After OfferFull it calls Session.TooSlow. Session.Tell does both.
//   - When the connection has ended for any reason, the door calls Session.Ended once.
//
// Operations may block: on a hook, on the bus, and on a channel with many members. So a door calls
// them where user code may block: in an HTTP handler of package web, or in a callback of package
// websocket or resp. It never calls them in a callback of a myriad.Handler, which would hold up the
// other connections of the loop. A door with connections of its own runs commands by a
// workers.Keyed on Hub.Workers: with the connection as the key they keep their order. The
// operations of one session do not overlap. Start, StartConnected, Offer, Tell, TooSlow and
// Disconnect do not block. Ended waits at most for a delivery that runs.
//
// Session.Subscribe and Join call announce after the last publication that the client does not get,
// and before the first one that it gets. So the door queues its confirmation there, and not after
// they have returned. Some doors say in the reply to connect what the server has subscribed the
// client to. They call Session.Hold, Session.SubscribeFirst, and Session.ReleaseHeld with the
// reply, in this order. SubscribeFirst subscribes before there is a reply: what is published
// meanwhile waits behind it. ReleaseHeld comes also when SubscribeFirst has failed, with what the
// client is told.
//
// What a door has of the bus besides, by Hub.Bus, ends by Hub.OnClose.
//
// A door belongs to one server. All doors of a server have at most 32 forms together; New returns
// an error if they have more.
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
