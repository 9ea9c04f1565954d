// Package redis is the door for clients of Redis: the channels of a push server by PUBLISH,
// SUBSCRIBE and PSUBSCRIBE.
//
// redis.go has the connections, their rights and forms; commands.go the commands and transactions;
// patterns.go the subscriptions of PSUBSCRIBE; move.go clients that move to another process.
package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/server/push/bus"

	"github.com/myriad-go/myriad/server/push/answer"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/resp"
	"github.com/myriad-go/myriad/resp/wire"
	"github.com/myriad-go/myriad/server/push/token"
)

// A Door is the channels of Redis: PUBLISH, SUBSCRIBE, PSUBSCRIBE, their sharded forms and
// PUBSUB, over the same channels as all other doors.
//
// AUTH takes the API key as its password, and the client may publish to every channel then; or a
// client's token, and the client has the rights of its token. If the server authenticates its
// clients, a client must authenticate. Without an API key every client may publish to every
// channel, as the HTTP API lets it.
type Door struct {
	hub      *hub.Hub
	patterns patterns
}

// A Server is what has the door: a *push.Server.
type Server interface{ Doors() []hub.Door }

// Listener returns a server for clients of Redis. Its Listen serves an address. Its Thawer is what
// package handover needs so that its clients move with s. Shut it down before Shutdown of the push
// server is called. It panics if s does not have the door.
func Listener(s Server, engine *myriad.Engine) *resp.Server { return doorOf(s).listener(engine) }

// doorOf returns the door of a server.
func doorOf(s Server) *Door {
	for _, one := range s.Doors() {
		if d, ok := one.(*Door); ok {
			return d
		}
	}
	panic("redis: the server has no door for Redis: add redis.New() to push.Config.Doors")
}

func (d *Door) listener(engine *myriad.Engine) *resp.Server {
	l := d.hub.Limits()
	largest := l.Publication + hub.QueueSlack
	server := &resp.Server{
		Handler: d.handler(), Engine: engine, Logger: d.hub.Logger(),
		WriteLimit: l.Queue + hub.QueueSlack, Overflow: resp.OverflowFail,
		Limits: resp.Limits{Bulk: largest, Bytes: 2*largest + l.Channels*(l.ChannelName+queueHeader)},
		OnOpen: func(c *resp.Conn) {
			if d.hub.IsDraining() || !d.hub.MayOpen(c.RemoteAddr().String()) {
				_ = c.TryPush(buf.From([]byte(tooManyClients))) // the connection ends in any case
				c.Close()
			}
		},
	}
	if d.hub.Keys().NeedsKey() || d.hub.Authenticates() {
		server.Auth = d.authenticate
		server.AuthOptional = !d.hub.Authenticates()
	}
	d.letMove(server)
	return server
}

// tooManyClients is what Redis says before it closes a connection that it has no room for. Client
// libraries connect again after a while.
const tooManyClients = "-ERR max number of clients reached\r\n"

// queueHeader is what a name takes in a command besides its bytes.
const queueHeader = 16

// A client is what the door knows of a connection that has authenticated or subscribed.
type client struct {
	mu        sync.Mutex
	ended     bool // with its connection, or by RESET
	grant     hub.Grant
	publisher bool            // it has the API key
	sessions  [2]*hub.Session // for SUBSCRIBE and for SSUBSCRIBE; nil until it is needed
	patterns  map[string]struct{}
	channels  [2]map[string]struct{}

	transaction *transaction // since MULTI; the commands' alone, which run one after the other
}

// client returns the client of a connection. RESET makes it another one. The commands that still
// run after the connection's end keep the last client, with the rights that it had.
func (d *Door) client(c *resp.Conn) *client {
	last := clientOf(c)
	if last != nil && !last.hasEnded() {
		return last
	}
	k := &client{patterns: map[string]struct{}{}}
	k.channels = [2]map[string]struct{}{{}, {}}
	c.OnEnd(func() { d.end(k) })
	if last != nil && k.hasEnded() { // at once: the connection has ended
		return last
	}
	c.SetValue(k)
	return k
}

// clientOf returns the client that the door has given the connection last, or nil.
func clientOf(c *resp.Conn) *client {
	k, _ := c.Value().(*client)
	return k
}

func (k *client) hasEnded() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended
}

// end ends the client's sessions. A session that starts after that ends at once: see session.
func (d *Door) end(k *client) {
	k.mu.Lock()
	k.ended = true
	sessions := k.sessions
	mine := slices.Collect(maps.Keys(k.patterns))
	k.mu.Unlock()
	d.patterns.drop(k, mine...)
	for _, s := range sessions {
		if s != nil {
			s.Ended()
		}
	}
}

// authenticate checks the password of AUTH: the API key, or a token.
func (d *Door) authenticate(c *resp.Conn, _, password string) bool {
	key := d.hub.Keys().IsKey(password)
	var g hub.Grant
	if !key {
		if d.hub.Tokens() == nil {
			d.hub.CountRefusal(hub.RefusedKey, c.RemoteAddr().String())
			return false
		}
		var err error
		if g, err = d.hub.Authenticate(password); errors.Is(err, token.ErrKeyNotYetKnown) {
			d.hub.CountRefusal(hub.RefusedUnknownKey, c.RemoteAddr().String(), "error", hub.OneLine(err))
			c.Abort(err) // a wrong password is final to clients; after a lost connection they try again
			return false
		}
		if err != nil {
			d.hub.CountRefusal(hub.RefusedToken, c.RemoteAddr().String(), "error", hub.OneLine(err))
			return false
		}
	}
	return d.become(c, g, key)
}

// become gives the client the rights of a token, or with key those of the API key. A new token of
// the same user renews what the client has, as the command refresh does. Another user has none of
// it: a client that has subscribed as the former one is disconnected, and comes back as the new
// one.
func (d *Door) become(c *resp.Conn, g hub.Grant, key bool) bool {
	k := d.client(c)
	k.mu.Lock()
	if k.ended { // and so have its sessions
		k.mu.Unlock()
		return false
	}
	same := g.User == k.grant.User
	if !same && d.hub.ConnectWait(g) > 0 {
		k.mu.Unlock()
		d.hub.CountRefusal(hub.RefusedRate, c.RemoteAddr().String(), "user", g.User)
		// a wrong password is final to clients; after a lost connection they try again
		c.Abort(answer.ErrTooManyRequests)
		return false
	}
	subscribed := k.count(false)+k.count(true) > 0
	sessions := k.sessions
	if !same && !subscribed {
		k.sessions = [2]*hub.Session{}
	}
	k.grant, k.publisher = g, key
	k.mu.Unlock()
	if !same && subscribed {
		c.Abort(errOtherUser)
		return false
	}
	for _, s := range sessions {
		switch {
		case s == nil:
		case same:
			s.Renew(g)
		default:
			s.Ended()
		}
	}
	return true
}

// errOtherUser is why a connection ends that has subscriptions of one user and authenticates
// as another.
var errOtherUser = errors.New("push: redis: AUTH as another user than the one that has subscribed: use a " +
	"connection for each")

// isExpired reports whether the token of a client without a session has expired. One with a session
// is ended by that, at a time that the API may have changed.
func (k *client) isExpired(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sessions == [2]*hub.Session{} && !k.grant.Ends.IsZero() && !now.Before(k.grant.Ends)
}

// session returns the client's session, and starts it if there is none. The form is that of the
// protocol which the client speaks now.
func (d *Door) session(c *resp.Conn, sharded bool) *hub.Session {
	k := d.client(c)
	k.mu.Lock()
	defer k.mu.Unlock()
	i := 0
	if sharded {
		i = 1
	}
	if k.sessions[i] == nil {
		k.sessions[i] = d.hub.StartConnected(transport{c}, form{protocol: c.Protocol(), sharded: sharded}, k.grant, nil)
		if k.ended {
			k.sessions[i].Ended()
		}
	}
	return k.sessions[i]
}

// isOperator reports whether the client may publish everywhere and see all channels.
func (d *Door) isOperator(c *resp.Conn) bool {
	k := d.client(c)
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.publisher || !d.hub.Keys().NeedsKey()
}

// publish answers PUBLISH and SPUBLISH with the number of subscribers on this node.
func (d *Door) publish(w *resp.Reply, c *resp.Command) {
	channel := string(c.Args[1])
	data := append([]byte(nil), c.Args[2]...)
	var err error
	var s *hub.Session
	if d.isOperator(c.Conn) {
		err = d.hub.PublishExact(context.Background(), channel, data, kindOf(data))
	} else {
		s = d.session(c.Conn, false)
		err = s.Publish(channel, bus.Publication{Data: data, Kind: kindOf(data)}, true)
	}
	if answer := d.badPublication(channel, data); err != nil && answer != "" {
		w.Error(answer)
		return
	}
	if err != nil {
		d.failFor(w, s, "redis publish", err)
		return
	}
	w.Int(int64(d.hub.SubscribersHere(channel) + d.patterns.matching(channel)))
}

// badPublication returns the answer to a publication that there cannot be, or "".
func (d *Door) badPublication(channel string, data []byte) string {
	switch limit := d.hub.Limits().Publication; {
	case !d.hub.IsChannelName(channel):
		return badChannel
	case len(data) > limit:
		return fmt.Sprintf("ERR message is %d bytes; the limit is %d", len(data), limit)
	}
	return ""
}

// badChannel answers a channel that there cannot be.
const badChannel = "ERR the name of a channel is empty, too long, not UTF-8, or has control characters"

// kindOf says what data is, so that subscribers of other doors get it as that: JSON as it is,
// text as a string, bytes in base64.
func kindOf(data []byte) bus.Kind {
	switch {
	case !utf8.Valid(data):
		return bus.Binary
	case json.Valid(data):
		return bus.JSON
	}
	return bus.Text
}

// fail answers with an error. What may succeed later is LOADING: go-redis and redis-py repeat a
// publication after that word. BUSY is repeated by neither, TRYAGAIN by go-redis. The protocol has
// no field for when: the text says it.
func (d *Door) fail(w *resp.Reply, method string, err error) {
	failed := answer.FailureOf(d.hub.Logger(), method, err)
	switch {
	case errors.Is(err, answer.ErrPermissionDenied):
		w.Error("NOPERM " + failed.Message)
	case errors.Is(err, answer.ErrDraining), errors.Is(err, answer.ErrOverloaded):
		w.Error(fmt.Sprintf("LOADING %s, in %d s", failed.Message, (d.hub.CallLater()+time.Second-1)/time.Second))
	default:
		w.Error("ERR " + failed.Message)
	}
}

// failFor is fail for an operation of a session, which a hook may have ended.
func (d *Door) failFor(w *resp.Reply, s *hub.Session, method string, err error) {
	var why answer.Disconnect
	if !errors.As(err, &why) {
		d.fail(w, method, err)
		return
	}
	w.Error("ERR " + why.Reason)
	w.Flush() // before the end of the connection
	s.DisconnectFor(err)
}

// New returns the door. It has no path: see Listener.
func New() *Door { return new(Door) }

// Forms implements Door.
func (*Door) Forms() (forms []hub.Form) {
	for _, protocol := range []resp.Protocol{resp.RESP2, resp.RESP3} {
		for _, sharded := range []bool{false, true} {
			forms = append(forms, form{protocol: protocol, sharded: sharded})
		}
	}
	return forms
}

// Open implements Door.
func (d *Door) Open(h *hub.Hub) (clients, admin func(*http.ServeMux)) {
	d.hub = h
	h.OnClose(d.patterns.end)
	return nil, nil
}

// A form writes each publication as a push message with its data. Sharded messages are for
// SSUBSCRIBE; they differ in one word. Clients of Redis do not expect subscriptions that they have
// not asked for; and the message for the end of one counts what is left, which a form does not
// know.
type form struct {
	hub.QuietForm
	protocol resp.Protocol
	sharded  bool
}

func (f form) Kind() (transport, protocol string) {
	if f.protocol == resp.RESP3 {
		return "redis", "resp3"
	}
	return "redis", "resp2"
}

func (f form) Publications(channel string, list []bus.Publication) []byte {
	word := "message"
	if f.sharded {
		word = "smessage"
	}
	dst := make([]byte, 0, hub.EncodedSize(channel, list))
	for _, p := range list {
		dst = wire.AppendBulk(wire.AppendBulk(wire.AppendPush(dst, 3, f.protocol), word), channel)
		dst = wire.AppendBulk(dst, p.Data)
	}
	return dst
}

// matches returns publications for a subscriber of a pattern.
func (f form) matches(pattern, channel string, list []bus.Publication) (dst []byte) {
	for _, p := range list {
		dst = wire.AppendBulk(wire.AppendBulk(wire.AppendPush(dst, 4, f.protocol), "pmessage"), pattern)
		dst = wire.AppendBulk(wire.AppendBulk(dst, channel), p.Data)
	}
	return dst
}

// Ping returns nil: clients of Redis do not expect a message that they have not asked for, and ping
// by themselves.
func (f form) Ping() (payload []byte, answered bool) { return nil, false }

func (f form) Share(payload []byte) hub.Shared { return buf.From(payload) }

// transport writes to a connection of package resp.
type transport struct{ *resp.Conn }

func (t transport) Send(m *hub.Message) error {
	if len(m.Payload) == 0 {
		return nil // a ping
	}
	if b, ok := m.Shared.(*buf.Block); ok {
		return hub.QueueError(t.TryPush(b.Retain()))
	}
	return hub.QueueError(t.TryPush(buf.From(m.Payload)))
}

func (t transport) Queued() int { return t.Conn.Queued() }

func (t transport) Remote() string { return t.RemoteAddr().String() }

// Close ends the connection. Redis has no message for the reason.
func (t transport) Close(why answer.Disconnect) {
	if why == answer.DisconnectSlow {
		t.Conn.Abort(why)
		return
	}
	t.Conn.Close()
}
