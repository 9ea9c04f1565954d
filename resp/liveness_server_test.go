package resp

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/resp/wire"
	"github.com/myriad-go/myriad/tlsloop"
)

// This file is the server of TestClientLiveness: a small Redis, which misbehaves until it is cured.

// A sickServer is a handler for connections of clients. Until cure is called, many of its
// connections have a fate.
type sickServer struct {
	t    *livenessWorld
	w    *sim.World
	r    *mathrand.Rand
	e    *myriad.Engine
	sick bool

	network, addr  string
	tls            *tls.Config // nil: none
	user, password string
	helloUnknown   bool // a server before Redis 6
	conns          []*sickConn
	born           int
	published      map[string]int // how many messages of each channel
	lied           time.Time      // the end of the last connection that was a liar
}

// A sickConn is one connection of the server.
type sickConn struct {
	s      *sickServer
	number int
	nc     *myriad.Conn // nil: it has ended
	opened time.Time
	fate   fate
	hung   bool // it answers no more, and does not end
	liar   bool // it has sent what a server does not send: what comes back is not judged
	paused bool
	judged bool
	in     []byte
	out    []delayed

	setUp    int // commands of the setup that have come
	commands int // of users
	proto    Protocol
	authed   bool
	name     string
	db       int
	subs     [2]map[string]bool
	pushes   int
	ready    time.Time // when the last reply of the setup was sent; zero: not yet
}

// delayed is output that is due at a time, and what follows it.
type delayed struct {
	due  time.Time
	p    []byte
	then func()
}

// A fate is what happens to a connection, and when.
type fate struct {
	stage stage
	after int // so many commands of that stage
	act   act
}

// A stage is a part of a connection's life.
type stage uint8

const (
	inNone stage = iota
	inAccept
	inTLS
	inSetup
	inCommands
	inSubscribe
	stages
)

// An act is what a sick server does.
type act uint8

const (
	hangs     act = iota // answers no more
	stopsRead            // reads no more
	resets               // resets the connection
	ends                 // closes it
	halfHangs            // answers half and hangs; likewise:
	halfResets
	halfEnds
	garbles      // sends what is no RESP
	comesEarly   // answers a command that has not been sent
	comesLate    // answers after a long time
	refuses      // answers an error
	tooLarge     // answers more than Limits allow
	forgets      // ends a subscription without being asked
	refusesEarly // answers an error to a command of which only a part has come
	acts
)

func (s *sickServer) drawFate() fate {
	if !s.sick || s.r.IntN(5) < 2 {
		return fate{}
	}
	f := fate{stage: stage(1 + s.r.IntN(int(stages)-1)), act: act(s.r.IntN(int(acts)))}
	switch f.stage {
	case inSetup:
		f.after = s.r.IntN(4)
	case inCommands:
		f.after = s.r.IntN(30)
	case inSubscribe:
		f.after = s.r.IntN(6)
	}
	switch {
	case f.act == refusesEarly && f.stage != inCommands:
		f.act = hangs
	case f.stage == inAccept || f.stage == inTLS:
		f.act = []act{hangs, stopsRead, resets, ends, garbles}[s.r.IntN(5)]
	}
	return f
}

// simPair is a certificate whose signatures all have one length, so that runs can be repeated.
var simPair = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{"redis.test"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
})

// sickDoor is the first handler of each connection.
type sickDoor struct{ s *sickServer }

func (d sickDoor) Opened(nc *myriad.Conn) {
	s := d.s
	s.born++
	c := &sickConn{s: s, number: s.born, nc: nc, opened: s.w.Now(), fate: s.drawFate(), proto: RESP2,
		authed: s.password == "", subs: [2]map[string]bool{{}, {}}}
	if c.fate.stage == inTLS && s.tls == nil {
		c.fate.stage = inAccept
	}
	nc.SetWriteLimit(1 << 28)
	s.conns = append(s.conns, c)
	s.t.note("conn %d: opened, fate %v", c.number, c.fate)
	var h myriad.Handler = c
	switch {
	case c.fate.stage == inAccept, c.fate.stage == inTLS && c.fate.act != hangs:
	case c.fate.stage == inTLS: // hangs when it has begun: no certificate comes
		h = &sickHandshake{c}
	case s.tls != nil:
		h = tlsloop.Options{Timeout: -1, Failed: func(*myriad.Conn, error, uint64) {},
			Closed: func(*myriad.Conn, error) { c.gone() }}.Handler(s.tls,
			func(tls.ConnectionState) myriad.Handler { return c })
	}
	nc.SetHandler(h, nil)
}

func (sickDoor) Received(*myriad.Conn, []byte) {}
func (sickDoor) Closed(*myriad.Conn, error)    {}

// sickHandshake reads, and says nothing.
type sickHandshake struct{ c *sickConn }

func (h *sickHandshake) Opened(*myriad.Conn)            { h.c.hang() }
func (*sickHandshake) Received(*myriad.Conn, []byte)    {}
func (h *sickHandshake) Closed(_ *myriad.Conn, _ error) { h.c.gone() }
func (h *sickHandshake) Ended(nc *myriad.Conn)          { _ = nc.Close() }

func (c *sickConn) gone() {
	c.nc = nil
	if c.liar {
		c.s.lied = c.s.w.Now()
	}
	c.s.conns = slices.DeleteFunc(c.s.conns, func(o *sickConn) bool { return o == c })
	c.s.t.note("conn %d: gone", c.number)
}

func (c *sickConn) hang() {
	c.hung = true
	c.s.t.note("conn %d: hangs", c.number)
	if !c.s.sick { // a fate that came late
		c.nc.Abort(nil)
	}
}

// Opened implements myriad.Handler, behind the TLS handshake.
func (c *sickConn) Opened(nc *myriad.Conn) {
	nc.SetTimer(0)
	if c.fate.stage == inAccept || c.fate.stage == inTLS {
		c.suffer(nil)
	}
}

func (c *sickConn) Ended(nc *myriad.Conn) { _ = nc.Close() }

func (c *sickConn) Closed(*myriad.Conn, error) { c.gone() }

// suffer is the fate. reply is what would be answered.
func (c *sickConn) suffer(reply []byte) {
	nc := c.nc
	half := reply[:len(reply)/2]
	if len(reply) > 1 {
		half = reply[:1+c.s.r.IntN(len(reply)-1)]
	}
	c.s.t.note("conn %d: suffers %v", c.number, c.fate)
	switch c.fate.act {
	case hangs:
		c.hang()
	case stopsRead:
		c.paused = true
		nc.Pause()
		c.hang()
	case resets:
		nc.Abort(nil)
	case ends:
		_ = nc.Close()
	case halfHangs:
		c.send(half, nil)
		c.hang()
	case halfResets:
		c.send(half, func() { c.abort() })
	case halfEnds:
		c.send(half, func() { _ = nc.Close() })
	case garbles:
		c.liar = true
		p := make([]byte, 1+c.s.r.IntN(40))
		for i := range p {
			p[i] = "+-:$*_#,(!=%~|>\r\n0129ab"[c.s.r.IntN(23)]
		}
		c.send(p, nil)
		c.hang()
	case comesEarly:
		c.liar = true
		c.send(append(slices.Clone(reply), "+early\r\n"...), nil)
	case comesLate:
		c.fate.stage = inNone
		c.delay(time.Duration(c.s.r.Int64N(int64(20*time.Second))), reply)
	case refuses:
		c.send([]byte([]string{"-ERR boom\r\n", "-LOADING wait\r\n", "-NOPERM no\r\n",
			"-NOAUTH Authentication required.\r\n"}[c.s.r.IntN(4)]), nil)
		c.liar = c.liar || c.fate.stage == inCommands
	case tooLarge:
		c.liar = true
		c.send(wire.AppendBulk(nil, strings.Repeat("x", c.s.t.largest+1)), nil)
	case refusesEarly:
		c.liar = true
		c.send([]byte("-ERR Protocol error: invalid bulk length\r\n"), nil)
		if c.s.r.IntN(2) == 0 {
			_ = nc.Close()
		}
		c.hang()
	case forgets:
		for kind, word := range []string{"unsubscribe", "punsubscribe"} {
			for _, name := range slices.Sorted(maps.Keys(c.subs[kind]))[:min(1, len(c.subs[kind]))] {
				delete(c.subs[kind], name)
				push := wire.AppendBulk(wire.AppendPush(nil, 3, c.proto), word)
				c.send(wire.AppendInt(wire.AppendBulk(push, name), 0), nil)
			}
		}
		c.send(reply, nil)
	}
}

func (c *sickConn) abort() {
	if c.nc != nil {
		c.nc.Abort(nil)
	}
}

// send queues output behind what waits.
func (c *sickConn) send(p []byte, then func()) {
	if c.hung || c.nc == nil {
		return
	}
	if len(c.out) > 0 {
		c.out = append(c.out, delayed{c.out[len(c.out)-1].due, p, then})
		return
	}
	c.write(p)
	if then != nil {
		then()
	}
}

func (c *sickConn) write(p []byte) {
	if c.nc != nil && len(p) > 0 {
		_, _ = c.nc.Write(p) // an error is the end of the connection
	}
}

// delay queues output that is due later, and so all that follows.
func (c *sickConn) delay(d time.Duration, p []byte) {
	due := c.s.w.Now().Add(d)
	if n := len(c.out); n > 0 && due.Before(c.out[n-1].due) {
		due = c.out[n-1].due
	}
	c.out = append(c.out, delayed{due, p, nil})
	if len(c.out) == 1 {
		c.nc.SetTimer(max(d, time.Millisecond))
	}
}

// Expired sends what is due.
func (c *sickConn) Expired(nc *myriad.Conn) {
	for len(c.out) > 0 && c.nc != nil && !c.hung {
		o := c.out[0]
		if d := o.due.Sub(c.s.w.Now()); d > 0 && c.s.sick {
			nc.SetTimer(d)
			return
		}
		c.out = c.out[1:]
		c.write(o.p)
		if o.then != nil {
			o.then()
		}
	}
}

// Received runs commands.
func (c *sickConn) Received(_ *myriad.Conn, p []byte) {
	if c.hung {
		return
	}
	c.in = append(c.in, p...)
	for c.nc != nil && !c.hung {
		n, args, err := wire.ParseCommand(c.in, nil, Limits{})
		if err != nil {
			c.s.t.wrong("grammar", "conn %d gets what is no command: %v, %.80q", c.number, err, c.in)
			c.nc.Abort(nil)
			return
		}
		if n == 0 {
			if c.fate.stage == inCommands && c.fate.act == refusesEarly && len(c.in) > 1000 && c.s.sick {
				c.suffer(nil)
			}
			return
		}
		words := make([]string, len(args))
		for i := range args {
			words[i] = string(args[i])
		}
		c.in = c.in[n:]
		c.run(words)
	}
}

func (c *sickConn) run(args []string) {
	var reply []byte
	st := inSetup
	switch args[0] {
	case "HELLO", "AUTH", "SELECT":
		reply = c.greet(args)
		c.setUp++
	case "CLIENT":
		c.name, reply = args[2], []byte("+OK\r\n")
		c.setUp++
	case "SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE":
		st, reply = inSubscribe, c.subscribe(args)
	case "PING":
		st, reply = inSubscribe, []byte("+PONG\r\n")
		if c.proto == RESP2 && c.subscribed() {
			reply = []byte("*2\r\n$4\r\npong\r\n$0\r\n\r\n")
		}
	case "CMD":
		c.commands++
		st, reply = inCommands, c.command(args)
	default:
		c.s.t.wrong("grammar", "conn %d: an unknown command %q", c.number, args)
	}
	if st == c.fate.stage && c.s.sick {
		if c.fate.after--; c.fate.after < 0 {
			c.suffer(reply)
			return
		}
	}
	if c.s.sick && c.s.r.IntN(20) == 0 {
		c.delay(time.Duration(c.s.r.Int64N(int64(200*time.Millisecond))), reply)
		return
	}
	if c.proto == RESP3 && c.s.r.IntN(10) == 0 {
		c.pushes++
		push := wire.AppendBulk(wire.AppendPush(nil, 3, RESP3), "invalidate")
		c.send(wire.AppendInt(wire.AppendInt(push, int64(c.number)),
			int64(c.pushes)), nil)
	}
	c.send(reply, nil)
}

func (c *sickConn) greet(args []string) []byte {
	s := c.s
	switch args[0] {
	case "HELLO":
		if s.helloUnknown {
			return []byte("-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n")
		}
		if len(args) == 5 && args[2] == "AUTH" {
			if args[4] != s.password || args[3] != or2(s.user, "default") {
				s.t.wrong("setup", "conn %d: HELLO %q", c.number, args)
			}
			c.authed = true
		}
		if !c.authed {
			return []byte("-NOAUTH HELLO must be called with the client already authenticated\r\n")
		}
		c.proto = RESP3
		return wire.AppendBulk(wire.AppendBulk(wire.AppendMap(nil, 1, RESP3), "server"), "redis")
	case "AUTH":
		if args[len(args)-1] != s.password || len(args) == 3 && args[1] != s.user {
			s.t.wrong("setup", "conn %d: %q", c.number, args)
		}
		c.authed = true
	case "SELECT":
		c.db, _ = strconv.Atoi(args[1])
	}
	return []byte("+OK\r\n")
}

func or2(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// checkSetup is for each command of a user: the setup came before it.
func (c *sickConn) checkSetup(subs bool) {
	l := c.s.t.client
	wantProto := l.Protocol
	if wantProto == 0 {
		wantProto = RESP3
	}
	if c.s.helloUnknown {
		wantProto = RESP2
	}
	if !c.authed || c.proto != wantProto || c.name != l.Name || !subs && c.db != l.DB {
		c.s.t.wrong("setup", "conn %d: a command before the setup: authed %v, protocol %d, name %q, db %d", c.number,
			c.authed, c.proto, c.name, c.db)
	}
	if c.ready.IsZero() {
		c.ready = c.s.w.Now()
	}
}

func (c *sickConn) command(args []string) []byte {
	c.checkSetup(false)
	id, _ := strconv.Atoi(args[1])
	x := c.s.t.calls[id]
	x.came++
	x.conn = c
	if x.came > 1 && x.err == nil && x.ended == 0 {
		c.s.t.wrong("twice", "command %d came %d times", id, x.came)
	}
	if len(args) != 3 || len(args[2]) != x.padding {
		c.s.t.wrong("bytes", "command %d has other arguments", id)
	}
	return wire.AppendValue(nil, x.want(), c.proto)
}

func (c *sickConn) subscribed() bool { return len(c.subs[0])+len(c.subs[1]) > 0 }

func (c *sickConn) subscribe(args []string) (reply []byte) {
	c.checkSetup(true)
	word := strings.ToLower(args[0])
	kind := byChannel
	if strings.HasPrefix(strings.TrimPrefix(word, "un"), "p") {
		kind = byPattern
	}
	for _, name := range args[1:] {
		if strings.HasPrefix(word, "un") || strings.HasPrefix(word, "pun") {
			delete(c.subs[kind], name)
		} else {
			c.subs[kind][name] = true
		}
		reply = wire.AppendInt(wire.AppendBulk(wire.AppendBulk(wire.AppendPush(reply, 3, c.proto), word), name),
			int64(len(c.subs[0])+len(c.subs[1])))
	}
	return reply
}

// publish sends a message to all subscribers.
func (s *sickServer) publish(channel string) {
	s.published[channel]++
	n := s.published[channel]
	for _, c := range slices.Clone(s.conns) {
		if c.nc == nil {
			continue
		}
		text := strconv.Itoa(n)
		if c.subs[byChannel][channel] {
			message := wire.AppendBulk(wire.AppendPush(nil, 3, c.proto), "message")
			c.send(wire.AppendBulk(wire.AppendBulk(message, channel), text), nil)
		}
		for _, p := range slices.Sorted(maps.Keys(c.subs[byPattern])) {
			if wire.Match(p, channel) {
				message := wire.AppendBulk(wire.AppendPush(nil, 4, c.proto), "pmessage")
				c.send(wire.AppendBulk(wire.AppendBulk(wire.AppendBulk(message, p),
					channel), text), nil)
			}
		}
	}
}

// cure ends all faults: nothing new hangs, and what hangs is reset, unless the client is to notice
// it by itself.
func (s *sickServer) cure() {
	s.sick = false
	for _, c := range slices.Clone(s.conns) {
		c.fate = fate{}
		switch {
		case c.nc == nil:
		case c.liar, c.hung && (s.t.silence == 0 || s.r.IntN(2) == 0):
			c.nc.Abort(nil)
		case len(c.out) > 0:
			_ = c.nc.SetDeadline(s.w.Now().Add(time.Millisecond))
		}
	}
}

// keepAddress has the server refuse, or hang in its backlog, from time to time until it is cured.
func (s *sickServer) keepAddress(until time.Time) {
	p := s.w.NewParker()
	var ln *myriad.Listener
	var hung *sim.Listener
	listen := func() {
		var err error
		if ln, err = s.e.Listen(s.network, s.addr, sickDoor{s}); err != nil {
			s.t.wrong("world", "listen: %v", err)
			return
		}
		s.addr = ln.Addr().String()
		if _, port, err := net.SplitHostPort(s.addr); err == nil && s.network == "tcp" {
			s.addr = net.JoinHostPort("127.0.0.1", port)
		}
	}
	for s.w.Now().Before(until) {
		switch s.r.IntN(5) {
		case 0: // refused
		case 1:
			l, err := s.w.Listen(context.Background(), s.network, s.addr)
			if err != nil {
				s.t.wrong("world", "listen: %v", err)
			} else {
				hung = l.(*sim.Listener)
			}
		default:
			listen()
		}
		s.t.note("the address listens %v, hangs %v", ln != nil, hung != nil)
		longest := 6 * time.Second
		if ln == nil {
			longest = 3 * time.Second
		}
		p.ParkFor(1 + min(time.Duration(s.r.Int64N(int64(longest))), until.Sub(s.w.Now())))
		if ln != nil && s.w.Now().Before(until) {
			_ = ln.Close()
			p.ParkFor(time.Millisecond) // until the driver has let go of it
			ln = nil
		}
		if hung != nil {
			_ = hung.Close()
			hung = nil
		}
	}
	if ln == nil {
		listen()
	}
}

// lies reports whether a connection has sent what a server does not send, and may be under way
// still.
func (s *sickServer) lies() bool {
	return s.w.Now().Sub(s.lied) < time.Second || slices.ContainsFunc(s.conns, func(c *sickConn) bool { return c.liar })
}
