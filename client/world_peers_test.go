package client_test

import (
	"crypto/ed25519"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// This file is the servers' side of a world: hosts, their connections, and what comes below HTTP:
// TCP, TLS, proxies. Each connection has a fate, drawn when it is accepted.

// A host is a server, perhaps behind a proxy, which answers for it. Its connections misbehave by
// chance until the faults stop.
type host struct {
	w         *world
	name      string // host and port
	url       string
	addr      net.Addr // of the listener: the proxy's, if there is one
	ln        *sim.Listener
	https     bool
	proxy     string // "", "http", "https", "socks5"
	proxyURL  *url.URL
	alpn      []string
	evil      bool
	served    bool // by a web.Server: what its connections do is not known
	h2        h2Settings
	conns     []*peerConn
	deeds     []deed // of connections that carried no request yet
	down      time.Duration
	up        time.Duration // it refuses connections from down until up
	silent    bool          // it answers no SYN
	wasSilent bool

	roomSince time.Time // the judge's
}

// A deed is what a peer has done that lets a request fail.
type deed struct {
	at   time.Time
	what string
}

// newHost begins to listen.
func (w *world) newHost(i int) *host {
	r := w.rng
	h := &host{w: w, https: chance(r, w.o.https), evil: chance(r, w.o.evil)}
	if chance(r, w.o.served) {
		h.served = true
		w.serve(h)
		return h
	}
	h.listen("127.0.0.1:0")
	port := h.addr.(*net.TCPAddr).Port
	h.name = fmt.Sprintf("%s:%d", pick(r, "127.0.0.1", "127.0.0.1", "localhost"), port)
	if chance(r, w.o.proxied) {
		h.proxy = pick(r, "http", "http", "https", "socks5")
		h.proxyURL = &url.URL{Scheme: h.proxy, Host: h.name}
		if chance(r, 0.3) {
			h.proxyURL.User = url.UserPassword("user", "password")
		}
		h.name = fmt.Sprintf("behind%d.test:80", i)
	}
	scheme := "http"
	if h.https {
		scheme = "https"
	}
	h.url = scheme + "://" + h.name
	switch h.alpn = []string{"h2", "http/1.1"}; {
	case !w.o.tr.Protocols.HTTP1():
		h.alpn = []string{"h2"}
	case chance(r, 0.3):
		h.alpn = []string{"http/1.1"}
	}
	h.h2.draw(r, w.o)
	if h.evil && chance(r, 0.2) {
		h.down = between(r, 0, w.o.stop)
		h.up = h.down + between(r, 0, w.o.stop-h.down)
		w.AfterFunc(h.down, h.ln.Refuse)
		w.AfterFunc(h.up, func() { h.listen(h.addr.String()) })
	}
	if h.evil && slices.Contains(w.o.fates, "no SYN") && chance(r, 0.5) {
		w.AfterFunc(between(r, 0, w.o.issue), func() { h.ln.Silence(true); h.silent, h.wasSilent = true, true })
		w.AfterFunc(w.o.stop, func() { h.ln.Silence(false); h.silent = false })
	}
	return h
}

func (h *host) listen(addr string) {
	ln, err := h.w.ListenPeer("tcp", addr, h.accept)
	if err != nil {
		panic(err)
	}
	h.ln, h.addr = ln, ln.Addr()
}

// isDown reports whether the host refuses connections, or did a moment ago.
func (h *host) isDown() bool {
	now := h.w.Now().Sub(sim.Epoch)
	return now >= h.down && now < h.up+time.Second && h.up > 0
}

func (h *host) String() string {
	s := h.url
	if h.proxy != "" {
		s += " by " + h.proxy + " proxy"
	}
	if h.served {
		return s + " (web.Server)"
	}
	return s + fmt.Sprintf(" (ALPN %v, %v)", h.alpn, h.h2)
}

func (h *host) did(format string, args ...any) {
	h.deeds = append(h.deeds, deed{h.w.Now(), fmt.Sprintf(format, args...)})
}

// A peerConn is a connection that a host has accepted.
type peerConn struct {
	h    *host
	n    int // the how many-th of its host
	base *sim.Peer
	top  pipe // what HTTP is written to
	born time.Time

	fate   string // how it misbehaves: "" is not at all
	quota  int    // raw bytes after which that happens
	dead   bool   // nothing that is written leaves
	unread bool   // nothing is read: the client's requests and its end are not seen

	ready   time.Time // requests can come: TLS and tunnels stand, and the client has acknowledged SETTINGS
	h2      bool
	overTLS bool      // the goroutine that reads it sees the client's end
	shaken  bool      // HTTP begins
	spent   time.Time // it takes no more requests
	gone    time.Time // the client's end, or the peer's reset
	lost    string    // why, if not by the client
	free    time.Time // since when a request has room
	h1      *h1Script
	mux     *h2Script
	used    int      // requests that came
	last    *attempt // the latest of them

	reported bool // the judge's
}

func (c *peerConn) String() string {
	s := fmt.Sprintf("connection %d (fate %q, %d requests, HTTP/2 %v)", c.n, c.fate, c.used, c.h2)
	for _, at := range []struct {
		name string
		time time.Time
	}{{"accepted", c.born}, {"ready", c.ready}, {"takes no more", c.spent}, {"gone", c.gone}} {
		if !at.time.IsZero() {
			s += fmt.Sprintf(", %s at %v", at.name, at.time.Sub(epoch))
		}
	}
	if c.lost != "" {
		s += " because " + c.lost
	}
	return s
}

// unused is since when the connection has no request, or has had none.
func (c *peerConn) unused() time.Time {
	since := c.born
	for _, x := range c.h.w.requests {
		x.mu.Lock()
		for _, a := range x.attempts {
			if a.c == c && x.over {
				since = later(since, x.overAt)
			}
		}
		x.mu.Unlock()
	}
	return since
}

// A pipe is what a script writes to.
type pipe interface {
	write(p []byte)
	closeWrite()
	close()
}

// A script reads what comes through a pipe.
type script interface {
	received(p []byte)
	ended()
}

// fates are those of a connection below HTTP. A quota of raw bytes decides when: in a ServerHello,
// in an answer to CONNECT, in a frame.
var fates = []string{"mute", "stall", "stall", "reset", "fin", "goaway", "goaway low", "goaway early", "die",
	"no settings"}

// These are reasons why a connection was lost.
const (
	broken      = "the network broke it"
	resetByPeer = "the peer reset it"
	endedByPeer = "the peer ended it"
)

func (h *host) accept(p *sim.Peer) {
	w := h.w
	c := &peerConn{h: h, n: len(h.conns), base: p, born: w.Now(), quota: -1}
	h.conns = append(h.conns, c)
	if h.evil && !w.stopped && chance(w.rng, w.o.conn) {
		c.drawFate()
	}
	var top script
	p.OnReceived = func(b []byte) { top.received(b) }
	p.OnEnded = func() {
		if top.ended(); !c.overTLS {
			c.clientEnds()
		}
	}
	p.OnClosed = func(err error) {
		switch top.ended(); {
		case p.Faulted():
			c.end(broken)
		case !c.overTLS:
			c.end("")
		}
	}
	top = c.layers(c)
	if !w.ended.IsZero() {
		p.Reset() // what has no end of its own would hang once more
	}
}

func (c *peerConn) drawFate() {
	r := c.h.w.rng
	from := c.h.w.o.fates
	if from == nil {
		from = fates
	}
	switch c.fate = pick(r, from...); c.fate {
	case "mute":
		c.quota = 0
	case "stall", "reset", "fin":
		c.quota = r.IntN(1 << r.IntN(13))
	case "die":
		c.h.w.AfterFunc(between(r, 0, c.h.w.o.stop), func() {
			if c.dead = true; chance(r, 0.3) {
				c.unread = true
				c.base.StopReading()
			}
		})
	case "no SYN":
		c.fate = ""
	}
}

// exhausted is when the quota is used up.
func (c *peerConn) exhausted() {
	c.dead = true
	switch c.fate {
	case "reset":
		c.end(resetByPeer)
		c.base.Reset()
	case "fin":
		c.end(endedByPeer)
		c.base.Close()
	}
}

// end notes that the connection is over.
func (c *peerConn) end(why string) {
	if !c.gone.IsZero() {
		return
	}
	c.gone, c.lost = c.h.w.Now(), why
	c.free = time.Time{}
	if why != "" {
		c.h.did("connection %d: %s", c.n, why)
	}
	if c.mux != nil {
		c.mux.lose(why)
	}
	if c.h1 != nil {
		c.h1.lose(why)
	}
}

// clientEnds is the client's FIN, or its close_notify.
func (c *peerConn) clientEnds() {
	c.end("")
	if !c.dead {
		c.base.Close()
	}
}

// write, closeWrite and close make a pipe of the connection itself, with the quota of its fate.
func (c *peerConn) write(p []byte) {
	if c.dead || len(p) == 0 {
		return
	}
	if c.quota >= 0 && c.quota < len(p) {
		c.base.Write(p[:c.quota])
		c.quota = 0
		c.exhausted()
		return
	}
	if c.quota > 0 {
		c.quota -= len(p)
	}
	c.base.Write(p)
}

func (c *peerConn) closeWrite() {
	if !c.dead {
		c.base.CloseWrite()
	}
}

func (c *peerConn) close() {
	if !c.dead {
		c.base.Close()
	}
}

// layers is what the client speaks first on a connection, down to HTTP.
func (c *peerConn) layers(under pipe) script {
	h := c.h
	inner := func(under pipe) script {
		if h.https {
			return c.tls(under, h.alpn, c.http)
		}
		return c.http(under, "")
	}
	switch h.proxy {
	case "socks5":
		return &socksScript{c: c, out: under, next: inner}
	case "http", "https":
		ask := inner
		if h.https {
			ask = func(under pipe) script { return &connectScript{c: c, out: under, next: inner} }
		} else {
			ask = func(under pipe) script { return c.http(under, "") }
		}
		if h.proxy == "https" {
			return c.tls(under, nil, func(under pipe, _ string) script { return ask(under) })
		}
		return ask(under)
	}
	return inner(under)
}

// http is the layer above.
func (c *peerConn) http(under pipe, alpn string) script {
	c.top, c.shaken = under, true
	switch {
	case alpn == "h2":
		return newH2Script(c)
	case alpn == "" && c.h.w.o.mayH2(c.h):
		return newH2Script(c)
	}
	c.h1 = &h1Script{c: c}
	c.isReady()
	return c.h1
}

func (c *peerConn) isReady() {
	if c.ready.IsZero() {
		c.ready, c.free = c.h.w.Now(), c.h.w.Now()
	}
}

// tls is a layer. Its goroutine reads, after the handshake what is for next.
func (c *peerConn) tls(under pipe, protos []string, next func(under pipe, alpn string) script) script {
	w := c.h.w
	c.overTLS = true
	l := &tlsLayer{w: w, under: under, parker: w.NewParker()}
	cfg := &tls.Config{Certificates: []tls.Certificate{certificate()}, NextProtos: protos, Time: w.Now,
		CurvePreferences: curves}
	l.c = tls.Server(tlsWire{l}, cfg)
	w.peers++
	w.Go(func() {
		defer func() { w.peers-- }()
		if err := l.c.Handshake(); err != nil {
			c.clientEnds()
			return
		}
		above := next(l, l.c.ConnectionState().NegotiatedProtocol)
		p := make([]byte, 16<<10)
		for {
			n, err := l.c.Read(p)
			if n > 0 {
				above.received(slices.Clone(p[:n]))
			}
			if err != nil {
				above.ended()
				c.clientEnds()
				return
			}
		}
	})
	return l
}

// A tlsLayer is a server's side of TLS: a script for what comes from below, and the pipe of what is
// above.
type tlsLayer struct {
	w      *world
	under  pipe
	c      *tls.Conn
	in     []byte
	over   bool
	parker driver.Parker
}

func (l *tlsLayer) received(p []byte) { l.in = append(l.in, p...); l.parker.Unpark() }
func (l *tlsLayer) ended()            { l.over = true; l.parker.Unpark() }
func (l *tlsLayer) write(p []byte)    { l.c.Write(p) }
func (l *tlsLayer) closeWrite()       { l.c.CloseWrite(); l.under.closeWrite() }
func (l *tlsLayer) close()            { l.c.Close() }

// A tlsWire is the net.Conn below.
type tlsWire struct{ l *tlsLayer }

func (c tlsWire) Read(p []byte) (int, error) {
	for len(c.l.in) == 0 {
		if c.l.over {
			return 0, io.EOF
		}
		c.l.parker.Park()
	}
	n := copy(p, c.l.in)
	c.l.in = c.l.in[n:]
	return n, nil
}
func (c tlsWire) Write(p []byte) (int, error)    { c.l.under.write(slices.Clone(p)); return len(p), nil }
func (c tlsWire) Close() error                   { c.l.under.close(); return nil }
func (tlsWire) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (tlsWire) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (tlsWire) SetDeadline(time.Time) error      { return nil }
func (tlsWire) SetReadDeadline(time.Time) error  { return nil }
func (tlsWire) SetWriteDeadline(time.Time) error { return nil }

// certificate has keys whose signatures are all of one length, so that runs of one seed differ in
// their bytes only.
var certificate = sync.OnceValue(func() tls.Certificate {
	public, key, err := ed25519.GenerateKey(crand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0),
		NotAfter: time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(crand.Reader, template, template, public, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

// A connectScript is an HTTP proxy that is asked to CONNECT.
type connectScript struct {
	c    *peerConn
	out  pipe
	in   []byte
	next func(pipe) script
	then script
	over bool
}

func (s *connectScript) received(p []byte) {
	if s.then != nil {
		s.then.received(p)
		return
	}
	s.in = append(s.in, p...)
	req, rest, ok := parseHead(s.in)
	if !ok {
		return
	}
	w := s.c.h.w
	if req.Method != "CONNECT" || req.Host != s.c.h.name || len(rest) > 0 {
		w.judge.broke(nil, "proxy", "a proxy was asked %s %s, with %d bytes behind", req.Method, req.Host, len(rest))
	}
	if s.c.h.evil && !w.stopped && chance(w.rng, w.o.conn/2) {
		s.c.h.did("connection %d: the proxy refused", s.c.n)
		s.out.write([]byte("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"))
		return
	}
	w.AfterFunc(w.quick(), func() {
		if s.over {
			return // else the layer above would wait for ever: the end has passed
		}
		s.then = s.next(s.out)
		s.out.write([]byte("HTTP/1.1 200 Connection established\r\n\r\n"))
	})
}

func (s *connectScript) ended() {
	s.over = true
	if s.then != nil {
		s.then.ended()
	}
}

// A socksScript is a SOCKS5 proxy (RFC 1928).
type socksScript struct {
	c    *peerConn
	out  pipe
	in   []byte
	step int
	next func(pipe) script
	then script
}

func (s *socksScript) received(p []byte) {
	if s.then != nil {
		s.then.received(p)
		return
	}
	s.in = append(s.in, p...)
	for s.advance() {
	}
}

func (s *socksScript) advance() bool {
	in := s.in
	switch s.step {
	case 0:
		if len(in) < 2 || len(in) < 2+int(in[1]) {
			return false
		}
		method := byte(0)
		if s.step = 2; slices.Contains(in[2:2+int(in[1])], 2) {
			method, s.step = 2, 1
		}
		s.in = in[2+int(in[1]):]
		s.out.write([]byte{5, method})
	case 1:
		if len(in) < 2 || len(in) < 2+int(in[1])+1 || len(in) < 3+int(in[1])+int(in[2+in[1]]) {
			return false
		}
		s.in = in[3+int(in[1])+int(in[2+in[1]]):]
		s.step = 2
		s.out.write([]byte{1, 0})
	case 2:
		if len(in) < 5 {
			return false
		}
		n := 10
		if in[3] == 3 {
			n = 7 + int(in[4])
		}
		if len(in) < n {
			return false
		}
		s.in, s.step = in[n:], 3
		w := s.c.h.w
		if s.c.h.evil && !w.stopped && chance(w.rng, w.o.conn/2) {
			s.c.h.did("connection %d: the proxy refused", s.c.n)
			s.out.write([]byte{5, 5, 0, 1, 0, 0, 0, 0, 0, 0})
			return false
		}
		s.then = s.next(s.out)
		s.out.write([]byte{5, 0, 0, 1, 127, 0, 0, 1, 0, 80})
	default:
		return false
	}
	return true
}

func (s *socksScript) ended() {
	if s.then != nil {
		s.then.ended()
	}
}
