package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/myriad-go/myriad/server/push/token"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/resp"
)

// A redisServer is the channels of Redis: PUBLISH, SUBSCRIBE, PSUBSCRIBE, their sharded forms and
// PUBSUB, over the same channels as all other doors.
//
// AUTH takes the API key as its password, and the client may publish to every channel then; or a
// token of TokenSecret, and the client has the rights of its token. If there is a TokenSecret, a
// client must authenticate. Without an API key every client may publish to every channel, as the
// HTTP API lets it.
type redisServer struct {
	*Server
	patterns patterns
}

// Listener returns a server for clients of Redis. Its Listen serves an address. Shut it down before
// Shutdown of the push server is called. The door must be one of a server's.
func (d *redisServer) Listener(engine *myriad.Engine) *resp.Server {
	l := d.Limits()
	largest := l.Publication + QueueSlack
	server := &resp.Server{
		Handler: d.handler(), Engine: engine, Logger: d.Logger(),
		WriteLimit: l.Queue + QueueSlack, Overflow: resp.OverflowFail,
		Limits: resp.Limits{Bulk: largest, Bytes: 2*largest + l.Channels*(l.ChannelName+queueHeader)},
		OnOpen: func(c *resp.Conn) {
			if d.IsDraining() || !d.MayOpen(c.RemoteAddr().String()) {
				c.Close()
			}
		},
	}
	if d.NeedsKey() || d.Authenticates() {
		server.Auth = d.authenticate
		server.AuthOptional = !d.Authenticates()
	}
	return server
}

// queueHeader is what a name takes in a command besides its bytes.
const queueHeader = 16

// A redisClient is what the door knows of a connection that has authenticated or subscribed.
type redisClient struct {
	mu        sync.Mutex
	ended     bool // with its connection, or by RESET
	grant     Grant
	publisher bool        // it has the API key
	sessions  [2]*Session // for SUBSCRIBE and for SSUBSCRIBE; nil until it is needed
	patterns  map[string]struct{}
	channels  [2]map[string]struct{}

	transaction *redisTransaction // since MULTI; the commands' alone, which run one after the other
}

// client returns the client of a connection. RESET makes it another one. The commands that still
// run after the connection's end keep the last client, with the rights that it had.
func (d *redisServer) client(c *resp.Conn) *redisClient {
	last := clientOf(c)
	if last != nil && !last.hasEnded() {
		return last
	}
	k := &redisClient{patterns: map[string]struct{}{}}
	k.channels = [2]map[string]struct{}{{}, {}}
	c.OnEnd(func() { d.end(k) })
	if last != nil && k.hasEnded() { // at once: the connection has ended
		return last
	}
	c.SetValue(k)
	return k
}

// clientOf returns the client that the door has given the connection last, or nil.
func clientOf(c *resp.Conn) *redisClient {
	k, _ := c.Value().(*redisClient)
	return k
}

func (k *redisClient) hasEnded() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended
}

// end ends the client's sessions. A session that starts after that ends at once: see session.
func (d *redisServer) end(k *redisClient) {
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
func (d *redisServer) authenticate(c *resp.Conn, _, password string) bool {
	key := d.IsKey(password)
	var g Grant
	if !key {
		if d.Tokens() == nil {
			d.Refused(RefusedKey, c.RemoteAddr().String())
			return false
		}
		var err error
		if g, err = d.Authenticate(password); errors.Is(err, token.ErrKeyNotYetKnown) {
			d.Refused(RefusedUnknownKey, c.RemoteAddr().String(), "error", OneLine(err))
			c.Abort(err) // a wrong password is final to clients; after a lost connection they try again
			return false
		}
		if err != nil {
			d.Refused(RefusedToken, c.RemoteAddr().String(), "error", OneLine(err))
			return false
		}
	}
	return d.become(c, g, key)
}

// become gives the client the rights of a token, or with key those of the API key. A new token of
// the same user renews what the client has, as the command refresh does. Another user has none of
// it: a client that has subscribed as the former one is disconnected, and comes back as the new
// one.
func (d *redisServer) become(c *resp.Conn, g Grant, key bool) bool {
	k := d.client(c)
	k.mu.Lock()
	if k.ended { // and so have its sessions
		k.mu.Unlock()
		return false
	}
	same := g.User == k.grant.User
	subscribed := k.count(false)+k.count(true) > 0
	sessions := k.sessions
	if !same && !subscribed {
		k.sessions = [2]*Session{}
	}
	k.grant, k.publisher = g, key
	k.mu.Unlock()
	if !same && subscribed {
		c.Abort(errOtherRedisUser)
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

// errOtherRedisUser is why a connection ends that has subscriptions of one user and authenticates
// as another.
var errOtherRedisUser = errors.New("push: redis: AUTH as another user than the one that has subscribed: use a " +
	"connection for each")

// isExpired reports whether the token of a client without a session has expired. One with a session
// is ended by that, at a time that the API may have changed.
func (k *redisClient) isExpired(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sessions == [2]*Session{} && !k.grant.Ends.IsZero() && !now.Before(k.grant.Ends)
}

// Session returns the client's session, and starts it if there is none. The form is that of the
// protocol which the client speaks now.
func (d *redisServer) session(c *resp.Conn, sharded bool) *Session {
	k := d.client(c)
	k.mu.Lock()
	defer k.mu.Unlock()
	i := 0
	if sharded {
		i = 1
	}
	if k.sessions[i] == nil {
		k.sessions[i] = d.StartConnected(redisTransport{c}, redisForm{protocol: c.Protocol(), sharded: sharded}, k.grant)
		if k.ended {
			k.sessions[i].Ended()
		}
	}
	return k.sessions[i]
}

// isOperator reports whether the client may publish everywhere and see all channels.
func (d *redisServer) isOperator(c *resp.Conn) bool {
	k := d.client(c)
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.publisher || !d.NeedsKey()
}

// publish answers PUBLISH and SPUBLISH with the number of subscribers on this node.
func (d *redisServer) publish(w *resp.Reply, c *resp.Command) {
	channel := string(c.Args[1])
	data := append([]byte(nil), c.Args[2]...)
	var err error
	if d.isOperator(c.Conn) {
		err = d.PublishExact(context.Background(), channel, data, redisKind(data))
	} else {
		err = d.session(c.Conn, false).Publish(channel, Publication{Data: data, Kind: redisKind(data)}, true)
	}
	if answer := d.badPublication(channel, data); err != nil && answer != "" {
		w.Error(answer)
		return
	}
	if err != nil {
		d.fail(w, "redis publish", err)
		return
	}
	w.Int(int64(d.SubscribersHere(channel) + d.patterns.matching(channel)))
}

// badPublication returns the answer to a publication that there cannot be, or "".
func (d *redisServer) badPublication(channel string, data []byte) string {
	switch limit := d.Limits().Publication; {
	case !d.IsChannelName(channel):
		return badRedisChannel
	case len(data) > limit:
		return fmt.Sprintf("ERR message is %d bytes; the limit is %d", len(data), limit)
	}
	return ""
}

// badRedisChannel answers a channel that there cannot be.
const badRedisChannel = "ERR the name of a channel is empty, too long, not UTF-8, or has control characters"

// redisKind says what data is, so that subscribers of other doors get it as that: JSON as it is,
// text as a string, bytes in base64.
func redisKind(data []byte) Kind {
	switch {
	case !utf8.Valid(data):
		return Binary
	case json.Valid(data):
		return JSON
	}
	return Text
}

// fail answers with an error.
func (d *redisServer) fail(w *resp.Reply, method string, err error) {
	code := "ERR "
	if errors.Is(err, ErrPermissionDenied) {
		code = "NOPERM "
	}
	w.Error(code + d.Explain(method, err).Message)
}
