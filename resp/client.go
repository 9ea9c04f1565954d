package resp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/resp/wire"
)

var (
	// ErrClientClosed is what commands end with after Client.Close.
	ErrClientClosed = errors.New("resp: client closed")
	// ErrLost is what commands end with that were sent on a connection which then broke. The server
	// may have run them.
	ErrLost = errors.New("resp: the connection was lost before the reply")
	// ErrPending says that Client.MaxPending commands have no reply yet.
	ErrPending = errors.New("resp: too many commands wait for their replies: wait for some, or raise Client.MaxPending")
)

// Defaults of Client.
const (
	DefaultConns       = 2
	DefaultMaxPending  = 1 << 16
	DefaultDialTimeout = 5 * time.Second
	DefaultSilence     = 30 * time.Second

	clientWriteLimit = 4 << 20
	leastBackoff     = 20 * time.Millisecond
	mostBackoff      = 3 * time.Second
)

// A Client sends commands to one server. Commands of all goroutines share a few connections: those
// given at the same time leave in one write, and the replies come back in one read (pipelining).
// The connections are made when the first commands need them. Its fields must not change once it is
// used. The zero value speaks to a server on this machine.
//
// If a connection breaks, commands that were sent on it end with ErrLost: whether the server has
// run them is not known. The next command makes a new connection. Commands that come meanwhile wait
// for that attempt, and end with its error if it fails. After a failed attempt the next one waits
// (Backoff).
//
// When a server answers READONLY, also to a script, its connection is replaced, once in 10 s at
// most. After a failover a former primary answers so, and the name in Addr leads to another server.
//
// A command that blocks its connection, such as BLPOP, needs a Client of its own with a negative
// Silence. Transactions (MULTI) that other goroutines' commands must not come into need a Client
// with one connection and no other callers.
//
// Commands without a reply of their own end with an error at once, and are not sent: SUBSCRIBE and
// its kin, MONITOR, SYNC, PSYNC and CLIENT REPLY.
type Client struct {
	Network string // "tcp" if it is empty; "unix"
	Addr    string // "127.0.0.1:6379" if it is empty

	Username string // with Password; empty: "default"
	Password string // empty: no AUTH
	DB       int    // SELECT
	Name     string // CLIENT SETNAME
	// Protocol is RESP3 or RESP2; 0: RESP3. A server that does not know HELLO or RESP3 is spoken
	// to in RESP2.
	Protocol Protocol
	// TLSConfig has connections make a TLS handshake. Without a ServerName that is Addr's host.
	TLSConfig *tls.Config

	// Conns is how many connections commands share. 0: 2.
	Conns int
	// MaxPending is how many commands of a connection may wait for their replies; above that they
	// end with ErrPending. 0: 65,536.
	MaxPending int
	// Limits bound replies. One that exceeds them ends the connection.
	Limits Limits
	// DialTimeout bounds an attempt to connect, until commands can be sent. That includes the
	// lookup of the name, the handshake of TLS, and the answers to HELLO, AUTH, SELECT and CLIENT
	// SETNAME. 0: 5 s.
	DialTimeout time.Duration
	// Silence is for how long a server may be silent while replies are to come, before the
	// connection is given up; it is noticed after twice the time at most. On a connection for
	// subscriptions the client sends PING after as long. 0: 30 s; negative: for ever.
	Silence time.Duration
	// Backoff is the wait before an attempt to connect, after so many failed ones. A connection
	// that ends before it has answered a command counts as failed. Nil: 20 ms, twice as long each
	// time, up to 3 s.
	Backoff func(failed int) time.Duration
	// Jitter returns a number between 0 and 1, as rand.Float64 does. The higher it is, the more of
	// Backoff's wait is left out, up to half, so that many clients come back at different times.
	// Nil: nothing is left out.
	Jitter func() float64
	// OnPush is called with each push message of RESP3 that does not belong to a subscription, such
	// as invalidations. It runs on a loop and must not block; the value is valid until it returns.
	OnPush func(v Value)
	// OnLost is called when a subscription may have lost messages. With an error that is ErrLost,
	// its connection had broken, and the server has confirmed it on another one. Messages come from
	// here on; those that were published in between do not. With an Error, the server has refused
	// to confirm it again. Then no messages come until a later connection is accepted. OnLost runs
	// on a loop, between two messages, and must not block. Nil: refusals are logged.
	OnLost func(s *Subscription, err error)

	// Engine runs the connections. Nil: myriad.Default(). Close never stops it.
	Engine *myriad.Engine
	// Logger gets panics in callbacks. Nil: slog.Default().
	Logger *slog.Logger

	clientState
}

// A clientState is what a Client has once it is used.
type clientState struct {
	once    sync.Once
	initErr error
	closed  atomic.Bool
	settings
	traffic
}

// settings are those of a Client, completed by init. They do not change.
type settings struct {
	engine        *myriad.Engine
	system        driver.System
	network, addr string
	tls           *tls.Config // nil: none
	maxPending    int
	dialTimeout   time.Duration
	silence       time.Duration // 0: for ever
}

// traffic is what the callers of a Client share. Any goroutine.
type traffic struct {
	links   []*link // constant
	channel *link   // of subscriptions; constant
	next    atomic.Uint32
	waiting atomic.Int64 // calls that wait at links
	calls   sync.Pool
}

// start completes the settings, once.
func (c *Client) start() error {
	c.once.Do(func() { c.initErr = c.init() })
	if c.closed.Load() {
		return ErrClientClosed
	}
	return c.initErr
}

func (c *Client) init() error {
	l := c.Limits
	if c.Conns < 0 || c.MaxPending < 0 || c.DB < 0 || c.DialTimeout < 0 || c.Protocol == 1 || c.Protocol > RESP3 ||
		l.Args < 0 || l.Bulk < 0 || l.Bytes < 0 || l.Depth < 0 {
		return fmt.Errorf("resp: Client has Conns %d, MaxPending %d, DB %d, DialTimeout %v, Protocol %d, Limits %+v: "+
			"none may be negative, and the protocol is 2 or 3", c.Conns, c.MaxPending, c.DB, c.DialTimeout, c.Protocol,
			l)
	}
	c.engine = c.Engine
	if c.engine == nil {
		e, err := myriad.Default()
		if err != nil {
			return fmt.Errorf("resp: %w", err)
		}
		c.engine = e
	}
	c.system = c.engine.System()
	c.network, c.addr = cmp.Or(c.Network, "tcp"), cmp.Or(c.Addr, "127.0.0.1:6379")
	c.tls = c.TLSConfig
	if host, _, err := net.SplitHostPort(c.addr); c.tls != nil && c.tls.ServerName == "" && err == nil {
		c.tls = c.tls.Clone()
		c.tls.ServerName = host
	}
	c.maxPending = cmp.Or(c.MaxPending, DefaultMaxPending)
	c.dialTimeout = cmp.Or(c.DialTimeout, DefaultDialTimeout)
	c.silence = max(0, cmp.Or(c.Silence, DefaultSilence))
	for range cmp.Or(c.Conns, DefaultConns) {
		c.links = append(c.links, &link{c: c})
	}
	c.channel = &link{c: c}
	c.channel.subs = &subscriptions{link: c.channel, names: [2]map[string][]*Subscription{{}, {}}}
	return nil
}

func (c *Client) logger() *slog.Logger { return cmp.Or(c.Logger, slog.Default()) }

// pick is the link for the next command. Commands of one moment go to the same one, so that they
// leave together. While its connection is being made, or has no room, another one is used.
func (c *Client) pick() *link {
	if len(c.links) == 1 {
		return c.links[0]
	}
	row := c.next.Add(1) / pickRow
	l := c.links[row%uint32(len(c.links))]
	if l.open.Load() {
		return l
	}
	for i := range uint32(len(c.links)) {
		if other := c.links[(row+i)%uint32(len(c.links))]; other.open.Load() {
			l.mu.Lock()
			l.connect() // although no command waits for it
			l.mu.Unlock()
			return other
		}
	}
	return l
}

// send sends a command, or has it wait. If a link has MaxPending commands, another one is used, by
// preference one with a connection.
func (c *Client) send(k *call) {
	l := c.pick()
	wrote, err := l.trySend(k, c.maxPending)
	for _, open := range []bool{true, false} {
		for i := 0; err == ErrPending && i < len(c.links); i++ {
			if other := c.links[i]; other != l && other.open.Load() == open {
				l = other
				wrote, err = l.trySend(k, c.maxPending)
			}
		}
	}
	c.sent(l, k, wrote, err)
}

// sent is what follows trySend.
func (c *Client) sent(l *link, k *call, wrote bool, err error) {
	switch {
	case err != nil:
		k.end(Value{}, err)
	case !wrote:
		c.relieve(l)
	}
}

// relieve has the other links write what waits at l, as far as they can.
func (c *Client) relieve(l *link) {
	if l.subs != nil {
		return
	}
	for _, other := range c.links {
		if other != l && other.open.Load() {
			other.relieve(l)
		}
	}
}

// pickRow is how many commands in a row go to the same connection.
const pickRow = 16

// Do sends a command and waits for its reply, or until ctx ends. Then the reply is dropped. The
// server may still run the command, unless that waits for a connection: it is not sent any more. An
// error that the server answers is returned as an Error, with the value. Any goroutine but a
// loop's, which Start is for.
func (c *Client) Do(ctx context.Context, args ...string) (Value, error) {
	return doCommand(ctx, c, args)
}

// DoBytes is Do with arguments in bytes, which are not used after it returns.
func (c *Client) DoBytes(ctx context.Context, args ...[]byte) (Value, error) {
	return doCommand(ctx, c, args)
}

// Start sends a command and has done called, exactly once, with its reply or an error. done is
// called on a loop, on this goroutine before Start returns, on the goroutine that calls Close, or
// on one that has failed to connect. It must not block. The value is valid until it returns;
// Value.Clone keeps it. Any goroutine.
func (c *Client) Start(done func(v Value, err error), args ...string) {
	startCommand(c, done, args)
}

// StartBytes is Start with arguments in bytes, which may be used again when it returns.
func (c *Client) StartBytes(done func(v Value, err error), args ...[]byte) {
	startCommand(c, done, args)
}

func startCommand[T string | []byte](c *Client, done func(Value, error), args []T) {
	k, err := newCall(c, args)
	if err != nil {
		done(Value{}, err)
		return
	}
	k.done = done
	c.send(k)
}

func doCommand[T string | []byte](ctx context.Context, c *Client, args []T) (Value, error) {
	if err := ctx.Err(); err != nil {
		return Value{}, fmt.Errorf("resp: the command was not sent: %w", err)
	}
	k, err := newCall(c, args)
	if err != nil {
		return Value{}, err
	}
	if k.waits = true; k.parker == nil {
		k.parker = c.system.NewParker()
	}
	c.send(k)
	return k.wait(ctx)
}

// Close ends the client: commands without a reply end with ErrClientClosed.
func (c *Client) Close() error {
	c.closed.Store(true)
	c.once.Do(func() { c.initErr = ErrClientClosed })
	for _, l := range c.links {
		l.close()
	}
	if c.channel != nil {
		c.channel.close()
	}
	return nil
}

// answerable says why a Client cannot send a command: no reply of its own comes to it. The commands
// behind it would wait for theirs in vain, or get those of others.
func answerable[T string | []byte](args []T) error {
	if len(args) == 0 {
		return errors.New("resp: the command was not sent: it has no name")
	}
	const longest = len("PUNSUBSCRIBE")
	if len(args[0]) < len("SYNC") || len(args[0]) > longest {
		return nil
	}
	var room [longest]byte
	switch name := appendUpper(room[:0], args[0]); string(name) {
	case "SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE":
		return fmt.Errorf("resp: the command was not sent: %s has no reply: use Subscribe, PSubscribe and "+
			"Subscription.Close of Client", string(name))
	case "MONITOR", "SYNC", "PSYNC":
		return fmt.Errorf("resp: the command was not sent: after %s a connection takes no other commands", string(name))
	case "CLIENT":
		if len(args) > 1 && strings.EqualFold(string(args[1]), "REPLY") {
			return errors.New("resp: the command was not sent: a Client needs the replies that CLIENT REPLY turns off")
		}
	}
	return nil
}

// A call is one command of a client, from Do or Start to its end. It has one owner at a time: the
// goroutine that makes it, the link where it waits, the connection on which it was sent.
type call struct {
	client  *Client
	request []byte
	queued  int                      // how much of request the connection has taken
	cut     int                      // connections that have ended when they had taken a part of it
	done    func(v Value, err error) // of Start
	waits   bool                     // Do waits
	parker  driver.Parker
	v       Value
	err     error
	state   atomic.Uint32
	// at is where the call waits to be sent; nil: it does not. It is changed under that link's mu.
	at         atomic.Pointer[link]
	prev, next *call // in link.waiting, or in clientConn.sent
}

// The states of a call that Do waits for.
const (
	callWaits uint32 = iota
	callEnded        // v and err are set
	callLeft         // Do has gone: the reply is dropped, and the call is not used again
)

// keptRequest is the longest request whose memory is kept for a later one.
const keptRequest = 4 << 10

func newCall[T string | []byte](c *Client, args []T) (*call, error) {
	if err := answerable(args); err != nil {
		return nil, err
	}
	if err := c.start(); err != nil {
		return nil, err
	}
	k, _ := c.calls.Get().(*call)
	if k == nil {
		k = &call{client: c}
	}
	k.request = wire.AppendCommand(k.request[:0], args...)
	return k, nil
}

// free gives the call back.
func (k *call) free() {
	if cap(k.request) > keptRequest {
		k.request = nil
	}
	k.done, k.waits, k.v, k.err, k.queued, k.cut = nil, false, Value{}, nil, 0, 0
	k.state.Store(callWaits)
	k.client.calls.Put(k)
}

// end is called once for each call, with nothing held. v is valid until it returns.
func (k *call) end(v Value, err error) {
	if err == nil {
		err = v.Err()
	}
	if !k.waits {
		done := k.done
		client := k.client
		k.free()
		client.callBack(func() { done(v, err) })
		return
	}
	if k.state.Load() == callLeft {
		return
	}
	k.v, k.err = v.Clone(), err
	if k.state.CompareAndSwap(callWaits, callEnded) {
		k.parker.Unpark()
	}
}

func endAll(calls []*call, err error) {
	for _, k := range calls {
		k.end(Value{}, err)
	}
}

// callBack runs a callback of the user's.
func (c *Client) callBack(f func()) {
	defer func() {
		if v := recover(); v != nil {
			c.logger().Error("resp: panic in a callback", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	f()
}

// wait is Do's wait. The parker may have a permit of an earlier call, so that the state decides.
// Each end gives a permit, which is taken even if the call has ended already: the next call that
// has this parker would find it.
func (k *call) wait(ctx context.Context) (Value, error) {
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, k.parker.Unpark)()
	}
	for {
		k.parker.Park()
		if k.state.Load() == callEnded {
			v, err := k.v, k.err
			k.free()
			return v, err
		}
		if ctx.Err() != nil && k.state.CompareAndSwap(callWaits, callLeft) {
			if l := k.at.Load(); l != nil {
				l.leave(k)
			}
			return Value{}, fmt.Errorf("resp: the command has no reply yet: %w", context.Cause(ctx))
		}
	}
}

// A callList is calls in order, linked by themselves.
type callList struct {
	first, last *call
	n           int
}

func (q *callList) push(k *call) {
	k.prev = q.last
	if q.last != nil {
		q.last.next = k
	} else {
		q.first = k
	}
	q.last = k
	q.n++
}

func (q *callList) remove(k *call) {
	if k.prev != nil {
		k.prev.next = k.next
	} else {
		q.first = k.next
	}
	if k.next != nil {
		k.next.prev = k.prev
	} else {
		q.last = k.prev
	}
	k.prev, k.next = nil, nil
	q.n--
}

// takeAll empties q.
func (q *callList) takeAll() (all []*call) {
	for q.first != nil {
		all = append(all, q.first)
		q.remove(q.first)
	}
	return all
}
