package push

import (
	"fmt"
	"net/http"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A Door is a protocol by which clients, programs or operators use the server. It turns their bytes
// into operations on a session (operations.go and subscription.go) or on the Server, and
// publications into its own bytes. What is above the doors names no protocol.
//
// A door starts a session with Server.Start, or with Server.StartConnected, which needs a transport
// and a form. Operations return an Error, which the door sends as the answer, or an error with a
// Disconnect: the door passes it to Session.Refuse.
//
// A door belongs to one server.
type Door interface {
	// Forms are the ways in which the door writes to clients, all that it ever uses.
	Forms() []form
	// Open prepares the door for its server, and returns what adds its paths to a mux: those that
	// clients use, and those for programs and operators. nil: there are none. New calls it once.
	Open(s *Server) (clients, admin func(mux *http.ServeMux))
}

// A form is one way in which a door writes to clients. A door has a form for each combination that
// its clients may choose, such as a codec and a framing. A form is a comparable value without
// state. Publications are encoded once for each form that a channel's subscribers use.
type form interface {
	// kind says for operators how clients of this form have connected: such as "sse", "json".
	kind() (transport, protocol string)
	// publications encodes list as one message.
	publications(channel string, list []Publication) []byte
	// notice encodes that a client has joined or left. nil: clients of this form get no notices.
	notice(channel string, n bus.Notice) []byte
	// subscribed encodes that the server has made a subscription. nil: the form cannot say so, and
	// the server makes none.
	subscribed(channel string, hello welcome) []byte
	// unsubscribed encodes that the server has ended a subscription. nil: the form cannot say so,
	// and the server ends the connection.
	unsubscribed(channel string, why unsubscription) []byte
	// refreshed encodes that the connection ends in ttl seconds, or never if ttl is 0. nil: clients
	// of this form are not told.
	refreshed(ttl uint32) []byte
	// ping returns the message that keeps a silent connection open. If answered is set, clients
	// answer it, or are disconnected; such clients can also bring new tokens.
	ping() (payload []byte, answered bool)
	// share returns the form of a message that this form's transports queue by reference.
	share(payload []byte) shared
}

// A quietForm is embedded in forms whose clients are told nothing but publications. When a
// subscription ends, so does their connection.
type quietForm struct{}

func (quietForm) notice(string, bus.Notice) []byte { return nil }

func (quietForm) subscribed(string, welcome) []byte { return nil }

func (quietForm) unsubscribed(string, unsubscription) []byte { return nil }

func (quietForm) refreshed(uint32) []byte { return nil }

// A oneWayForm is a form whose clients may only receive, after they have connected.
type oneWayForm interface {
	form
	oneWay() bool
}

// A shared is a message that many transports queue by reference, such as a *websocket.Prepared. Its
// maker releases it.
type shared interface{ Release() }

// A transport carries encoded messages to one client. Any goroutine may call its methods, also
// concurrently. The methods never block, and never call the session. When the connection has ended
// for any reason, the transport calls session.ended once.
type transport interface {
	// send queues all of m or nothing, in the order of the calls. It copies m's payload, or queues
	// m's shared form by reference. errFull means that the transport's queue is full. Any other
	// error means that the connection has ended.
	send(m *message) error
	// queued returns the bytes that the kernel has not taken yet.
	queued() int
	// remote returns the peer's address for the log, or "" if the transport does not know it.
	remote() string
	// close sends what is queued and the reason, as far as the protocol has a way to say it, then
	// ends the connection. For endSlow it may drop what is queued. A peer that does not read delays
	// the end for a bounded time only. Later calls have no effect.
	close(why ending)
}

// A message is encoded once for each form, for any number of subscribers.
type message struct {
	payload []byte // a receiver of the message must not keep it
	shared  shared // nil for a message to one client
}

func (m *message) release() {
	if m.shared != nil {
		m.shared.Release()
	}
}

// A formID is a form's index in a node's table.
type formID uint8

// maxForms is how many forms all doors have together.
const maxForms = 32

// A formEntry is a form with what all its clients share.
type formEntry struct {
	form
	pings    *message
	answered bool
}

// newForms returns the table of all forms.
func newForms(doors []Door) (table []formEntry) {
	for _, d := range doors {
		for _, f := range d.Forms() {
			payload, answered := f.ping()
			table = append(table, formEntry{f, &message{payload, f.share(payload)}, answered})
		}
	}
	if len(table) > maxForms {
		panic(fmt.Sprintf("push: %d forms: raise maxForms", len(table)))
	}
	return table
}

// idOf returns the id of f, which a door must have listed.
func (n *node) idOf(f form) formID {
	for i := range n.forms {
		if n.forms[i].form == f {
			return formID(i)
		}
	}
	panic(fmt.Sprintf("push: the form %#v is in no door's list", f))
}

// form returns the session's form.
func (s *session) form() *formEntry { return &s.node.forms[s.formID] }

// An encoder encodes the message of each form on first use.
type encoder struct {
	node *node
	name string
	list []Publication
	made [maxForms]*message

	special *specialMessages // for members that get deltas; nil without one
}

func (e *encoder) message(id formID) *message {
	m := e.made[id]
	if m == nil {
		m = e.node.forms[id].message(e.name, e.list)
		e.made[id] = m
	}
	return m
}

func (f *formEntry) message(channel string, list []Publication) *message {
	payload := f.publications(channel, list)
	return &message{payload, f.share(payload)}
}

func (e *encoder) release() {
	releaseAll(&e.made)
	if e.special != nil {
		releaseAll(&e.special.deltas)
		releaseAll(&e.special.wholes)
	}
}

func releaseAll(made *[maxForms]*message) {
	for _, m := range made {
		if m != nil {
			m.release()
		}
	}
}

// envelope estimates the bytes of a message besides its data, channel and user.
const envelope = 128

// encodedSize estimates the size of list as a message.
func encodedSize(channel string, list []Publication) (size int) {
	for i := range list {
		size += envelope + len(channel) + len(list[i].User) + list[i].Size()
	}
	return size
}
