package websocket

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/internal/tunnel"
	"github.com/myriad-go/myriad/tlsloop"
)

// DialOptions say how to connect. Like Options, one value serves any number of connections and must
// not be changed or copied once it has been used. OriginPatterns mean nothing here.
type DialOptions struct {
	Options

	// Header is sent with the handshake, for instance Origin, Authorization or Cookie. The fields
	// of the handshake itself and those that HTTP/1.1 frames a request with are refused.
	Header http.Header
	// Host replaces the Host field, also behind a redirect.
	Host string
	// DialContext opens the connection to the server or to the proxy, as in http.Transport, for
	// instance from a chosen local address. The engine adopts the result. Nil: the engine dials.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	// TLSConfig is for "wss". Nil: the zero Config. ServerName is the address's host if it is
	// empty. Of NextProtos "h2" is not offered, because the handshake is one of HTTP/1.1. If that
	// leaves none, "http/1.1" is. The Config is not changed.
	TLSConfig *tls.Config
	// Proxy says which proxy to use for a request, as in http.Transport: http.ProxyFromEnvironment
	// looks at HTTP_PROXY, HTTPS_PROXY (for wss) and NO_PROXY. Nil, or a nil URL: none. "http" and
	// "https" proxies are asked by CONNECT, "socks5" and "socks5h" by SOCKS5, each with the user
	// and password of the URL. TLSConfig is for an "https" proxy, too; TLS through it costs two
	// goroutines for each connection.
	Proxy func(*http.Request) (*url.URL, error)
	// MaxRedirects is how many redirects (301, 302, 303, 307, 308) are followed. 0: none, as
	// browsers do: the response is returned with the error. From wss none leads to ws, and to
	// another host Authorization and Cookie are not sent.
	MaxRedirects int
	// Random is the source of handshake keys and frame masks, which have to be unpredictable for
	// the sake of others (RFC 6455 §10.3). It is read by one goroutine at a time. Nil: crypto/rand.
	Random io.Reader

	dialing atomic.Pointer[settings]
}

// Dial opens a WebSocket to a URL like "wss://example.com/chat" (http and https are taken for ws
// and wss). It waits until the server has agreed, or ctx ends; besides, Options.HandshakeTimeout
// bounds each of the proxy's answer, the TLS handshake and the server's answer. The end of ctx
// after that does not end the connection. A failed Dial calls no callback. If there is a response,
// it is returned also with an error, for instance with the server's 401. Its Body has at most 1 KiB
// and needs no closing. OnOpen may have been called when Dial returns. Any goroutine but a loop's.
func Dial(ctx context.Context, address string, o *DialOptions) (*Conn, *http.Response, error) {
	return DialWith(ctx, address, o, nil)
}

// DialWith is Dial with a Value that the connection has from its first callback on.
func DialWith(ctx context.Context, address string, o *DialOptions, value any) (*Conn, *http.Response, error) {
	s, err := o.settings()
	if err != nil {
		return nil, nil, err
	}
	target, err := parseAddress(address)
	if err != nil {
		return nil, nil, err
	}
	header := o.Header
	for followed := 0; ; followed++ {
		g, err := o.dial(ctx, s, target, header, value)
		if err == nil {
			return g.conn, g.response, nil
		}
		err = fmt.Errorf("websocket: Dial %s: %w", address, err)
		if g == nil || g.response == nil {
			return nil, nil, err
		}
		next, moved := redirected(g.response, target)
		if !moved || followed == o.MaxRedirects {
			return nil, g.response, err
		}
		if next == nil {
			return nil, g.response, fmt.Errorf("%w, to %q, where we do not follow", err,
				g.response.Header.Get("Location"))
		}
		header = headerFor(header, target, next)
		target = next
	}
}

// dial is one attempt. The greeting is returned also with an error, if the server has been asked.
func (o *DialOptions) dial(ctx context.Context, s *settings, target *url.URL, header http.Header, value any) (
	*greeting, error) {
	g, err := o.greeting(s, target, header)
	if err != nil {
		return nil, err
	}
	e, err := s.on()
	if err != nil {
		return nil, err
	}
	proxy, err := o.proxyFor(ctx, target)
	if err != nil {
		return nil, err
	}
	g.value, g.waiter = value, e.System().NewParker()
	h, at := myriad.Handler(g), hostPort(target)
	if target.Scheme == "wss" {
		h = o.secure(g, g, target, g.finish)
	}
	if proxy != nil {
		if h, err = o.through(e, g, h, proxy, target); err != nil {
			return nil, err
		}
		at = hostPort(proxy)
	}
	mc, err := o.connect(ctx, e, at, h)
	if err != nil {
		return nil, err
	}
	return g, g.wait(ctx, mc)
}

// connect opens a connection that h serves.
func (o *DialOptions) connect(ctx context.Context, e *myriad.Engine, addr string, h myriad.Handler) (*myriad.Conn,
	error) {
	if o.DialContext == nil {
		return e.Dial(ctx, "tcp", addr, h)
	}
	nc, err := o.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return e.Adopt(nc, nil, h)
}

// secure is the client's side of a TLS handshake with a host, and next behind it. failed is called
// if the handshake fails.
func (o *DialOptions) secure(g *greeting, next myriad.Handler, host *url.URL, failed func(error)) myriad.Handler {
	opts := tlsloop.Options{Timeout: cmp.Or(g.settings.handshakeTimeout, -1),
		Failed: func(*myriad.Conn, error, uint64) {}} // Dial returns it, so it is not logged
	opts.Closed = func(_ *myriad.Conn, err error) { failed(cmp.Or(err, myriad.ErrClosed)) }
	return opts.Client(o.tlsFor(host), next)
}

// tlsFor is the configuration for a host.
func (o *DialOptions) tlsFor(target *url.URL) *tls.Config {
	cfg := o.TLSConfig.Clone()
	if cfg == nil {
		cfg = &tls.Config{}
	}
	if cfg.ServerName == "" {
		cfg.ServerName = target.Hostname()
	}
	if slices.Contains(cfg.NextProtos, "h2") {
		cfg.NextProtos = slices.DeleteFunc(slices.Clone(cfg.NextProtos), func(p string) bool { return p == "h2" })
		if len(cfg.NextProtos) == 0 {
			cfg.NextProtos = []string{"http/1.1"}
		}
	}
	return cfg
}

// redirected reports whether a response is a redirect, and where to; nil: nowhere we would go.
func redirected(r *http.Response, from *url.URL) (to *url.URL, moved bool) {
	switch r.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect:
	default:
		return nil, false
	}
	location, err := url.Parse(r.Header.Get("Location"))
	if err != nil || r.Header.Get("Location") == "" {
		return nil, true
	}
	location = from.ResolveReference(location)
	location.Fragment = ""
	to, err = parseAddress(location.String())
	if err != nil || from.Scheme == "wss" && to.Scheme != "wss" {
		return nil, true
	}
	return to, true
}

// headerFor leaves out what is for the first host only.
func headerFor(header http.Header, from, to *url.URL) http.Header {
	if from.Hostname() == to.Hostname() {
		return header
	}
	header = header.Clone()
	for name := range header {
		switch http.CanonicalHeaderKey(name) {
		case "Authorization", "Cookie", "Cookie2", "Www-Authenticate", "Proxy-Authorization":
			delete(header, name)
		}
	}
	return header
}

func (o *DialOptions) settings() (*settings, error) {
	if o == nil {
		return nil,
			errors.New("websocket: the DialOptions are nil: give a pointer to a value that lives as long as " +
				"its connections")
	}
	if s := o.dialing.Load(); s != nil {
		return s, nil
	}
	s, err := o.compile()
	if err != nil {
		return nil, err
	}
	if err = checkHeader(o.Header); err != nil {
		return nil, err
	}
	if o.MaxRedirects < 0 {
		return nil, fmt.Errorf("websocket: DialOptions.MaxRedirects is %d: it must not be negative", o.MaxRedirects)
	}
	s.rules.fromClient = false
	s.random = &sharedReader{r: rand.Reader}
	if o.Random != nil {
		s.random = &sharedReader{r: o.Random}
	}
	if !o.dialing.CompareAndSwap(nil, s) {
		s = o.dialing.Load()
	}
	return s, nil
}

// sharedReader lets a source of chance be read by the connections of several loops.
type sharedReader struct {
	mu sync.Mutex
	r  io.Reader
}

func (s *sharedReader) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return io.ReadFull(s.r, p)
}

// parseAddress gives a URL of scheme ws or wss.
func parseAddress(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, fmt.Errorf("websocket: Dial: %w", err)
	case u.Hostname() == "":
		return nil, fmt.Errorf("websocket: Dial %s: there is no host in it", address)
	case strings.Contains(address, "#"):
		return nil, fmt.Errorf("websocket: Dial %s: a WebSocket's address has no fragment (RFC 6455 section 3)",
			address)
	case u.User != nil:
		return nil, errors.New("websocket: Dial: the address has a user in it: use DialOptions.Header for " +
			"Authorization")
	}
	switch u.Scheme {
	case "ws", "wss":
	case "http":
		u.Scheme = "ws"
	case "https":
		u.Scheme = "wss"
	default:
		return nil, fmt.Errorf("websocket: Dial %s: the scheme is %q: use ws or wss", address, u.Scheme)
	}
	return u, nil
}

// checkHeader refuses what the handshake writes itself, and what could smuggle something else into
// it.
func checkHeader(header http.Header) error {
	for name, values := range header {
		switch lower := strings.ToLower(name); {
		case !h1.IsToken(name):
			return fmt.Errorf("websocket: DialOptions.Header has the name %q: it must be a token", name)
		case strings.HasPrefix(lower, "sec-websocket-"), lower == "host", lower == "connection", lower == "upgrade",
			lower == "content-length", lower == "transfer-encoding", lower == "trailer", lower == "te",
			lower == "expect":
			return fmt.Errorf("websocket: DialOptions.Header has %s, which the handshake is made of: use the fields "+
				"of DialOptions", name)
		}
		for _, v := range values {
			if !h1.IsFieldValue([]byte(v)) {
				return fmt.Errorf("websocket: DialOptions.Header has a control character in %s", name)
			}
		}
	}
	return nil
}

// greeting makes the request.
func (o *DialOptions) greeting(s *settings, u *url.URL, header http.Header) (*greeting, error) {
	var nonce [16]byte
	if _, err := s.random.Read(nonce[:]); err != nil {
		return nil, fmt.Errorf("websocket: DialOptions.Random: %w", err)
	}
	key := base64.StdEncoding.EncodeToString(nonce[:])
	host := o.Host
	if host == "" {
		host = strings.TrimSuffix(u.Host, map[string]string{"ws": ":80", "wss": ":443"}[u.Scheme])
	}
	for i := range len(host) {
		if c := host[i]; c <= ' ' || c >= 0x7f {
			return nil, fmt.Errorf("websocket: Host %q: it must be a host name with an optional port", host)
		}
	}
	p := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\n"+upgradeLines+versionLine+"Sec-WebSocket-Key: %s\r\n",
		u.RequestURI(), host, key)
	if len(s.Subprotocols) > 0 {
		p = fmt.Appendf(p, "Sec-WebSocket-Protocol: %s\r\n", strings.Join(s.Subprotocols, ", "))
	}
	if s.packing.policy.on {
		p = fmt.Appendf(p, "Sec-WebSocket-Extensions: %s\r\n", s.packing.policy.offer().append(nil))
	}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		for _, v := range header[name] {
			p = fmt.Appendf(p, "%s: %s\r\n", name, v)
		}
	}
	return &greeting{settings: s, request: append(p, "\r\n"...), key: key}, nil
}

// A greeting is a client's side of the opening handshake: the handler of a connection until the
// server has agreed. Its methods run on the loop, wait on Dial's goroutine.
type greeting struct {
	settings *settings
	request  []byte
	key      string
	value    any // of the connection
	answer   responseReader
	refusal  *refusalBody // of a response that is not a 101

	waiter   driver.Parker
	done     atomic.Bool // the rest is written before it
	conn     *Conn
	response *http.Response
	err      error
}

func (g *greeting) Opened(c *myriad.Conn) {
	c.SetTimer(g.settings.handshakeTimeout)
	// of that, Closed tells the reason
	if _, err := c.Write(g.request); err != nil && !errors.Is(err, myriad.ErrClosed) {
		c.Abort(err)
	}
	g.request = nil
}

func (g *greeting) Received(c *myriad.Conn, p []byte) {
	switch {
	case g.done.Load():
	case g.refusal != nil:
		g.refused(c, p)
	default:
		response, rest, err := g.answer.add(p)
		if err != nil {
			g.fail(c, fmt.Errorf("the server's answer: %w", err))
		} else if response != nil {
			g.answered(c, response, rest)
		}
	}
}

// answered judges the response. rest are the bytes behind its head.
func (g *greeting) answered(c *myriad.Conn, response *http.Response, rest []byte) {
	g.response = response
	if response.StatusCode != http.StatusSwitchingProtocols {
		g.refusal = newRefusalBody(&g.answer.head)
		g.refused(c, rest)
		return
	}
	subprotocol, err := g.agreed(response)
	if err != nil {
		g.fail(c, err)
		return
	}
	terms, err := agreedExtensions(g.settings, response.Header["Sec-Websocket-Extensions"])
	if err != nil {
		g.fail(c, err)
		return
	}
	conn := newConn(g.settings, terms, subprotocol)
	conn.nc = c
	conn.SetValue(g.value)
	g.conn = conn
	c.SetHandler((*handler[*myriad.Conn])(conn), rest)
	g.finish(nil)
}

// agreed is RFC 6455 §4.1: what a client checks in a 101.
//
// https://www.rfc-editor.org/rfc/rfc6455#section-4.1
func (g *greeting) agreed(r *http.Response) (subprotocol uint8, err error) {
	upgrade, connection, accept := strings.Join(r.Header["Upgrade"], ","), strings.Join(r.Header["Connection"], ","),
		r.Header["Sec-Websocket-Accept"]
	switch {
	case !hasToken(upgrade, "websocket") || !hasToken(connection, "upgrade"):
		return 0, errors.New("the server's 101 does not upgrade to websocket")
	case len(accept) != 1 || accept[0] != string(appendAcceptKey(nil, g.key)):
		return 0, errors.New("the server's Sec-WebSocket-Accept is not the answer to our key")
	}
	chosen := r.Header["Sec-Websocket-Protocol"]
	if len(chosen) == 0 {
		return 0, nil
	}
	if subprotocol = g.settings.number(chosen[0]); subprotocol == 0 || len(chosen) > 1 {
		return 0, fmt.Errorf("the server chose the subprotocol %q, which was not offered", chosen)
	}
	return subprotocol, nil
}

// agreedExtensions is what the server has accepted of our offer.
func agreedExtensions(s *settings, lines []string) (t deflateTerms, err error) {
	for _, line := range lines {
		for at := 0; at < len(line); {
			e, next := nextExtension(line, at)
			ok := next >= 0 && e.isDeflate && !e.invalid && s.packing.policy.on && !t.agreed
			if ok {
				t, ok = s.packing.policy.confirm(e.params)
			}
			if !ok {
				return t, fmt.Errorf("the server wants extensions that were not offered like that: %q", lines)
			}
			at = next
		}
	}
	return t, nil
}

// refused takes in a part of the body of a response that is not a 101, until it is whole.
func (g *greeting) refused(c *myriad.Conn, p []byte) {
	if g.refusal.add(p) {
		g.refusedWith(c)
	}
}

// refusedWith fails the handshake with the response and what has come of its body.
func (g *greeting) refusedWith(c *myriad.Conn) {
	g.response.Body = io.NopCloser(&g.refusal.bytes)
	g.fail(c, fmt.Errorf("the server answered %s", g.response.Status))
}

func (g *greeting) fail(c *myriad.Conn, err error) {
	_ = c.Close()
	g.finish(err)
}

func (g *greeting) finish(err error) {
	if g.done.Load() {
		return
	}
	g.err = err
	g.done.Store(true)
	g.waiter.Unpark()
}

func (g *greeting) Ended(c *myriad.Conn) {
	if g.refusal != nil {
		g.refusedWith(c)
		return
	}
	g.fail(c, fmt.Errorf("the server ended the connection without a response: %w", io.ErrUnexpectedEOF))
}

func (g *greeting) Expired(c *myriad.Conn) {
	g.finish(fmt.Errorf("no response in time: %w", os.ErrDeadlineExceeded))
	c.Abort(nil)
}

func (g *greeting) Closed(_ *myriad.Conn, err error) { g.finish(cmp.Or(err, myriad.ErrClosed)) }

// wait returns when the handshake has ended or ctx has.
func (g *greeting) wait(ctx context.Context, c *myriad.Conn) error {
	stop := context.AfterFunc(ctx, g.waiter.Unpark)
	defer stop()
	for !g.done.Load() {
		g.waiter.Park()
		if ctx.Err() != nil && !g.done.Load() {
			c.Abort(context.Cause(ctx)) // Closed follows, or the handshake was quicker
			ctx = context.WithoutCancel(ctx)
		}
	}
	return g.err
}

// maxResponse bounds the heads of a response, those of interim ones included, in bytes.
const maxResponse = 16 << 10

// A responseReader gathers the response that ends a handshake with a server. Interim
// responses (1xx, but 101) are skipped (RFC 9110 section 15.2).
type responseReader struct {
	got     []byte // of the response that is not complete yet
	scan    h1.Scan
	skipped int // bytes of interim responses
	head    h1.ResponseHead
}

var errLongResponse = fmt.Errorf("the head of the response is above %d bytes", maxResponse)

// add takes in p. It returns nil and no error until the head of the response is complete. rest are
// the bytes behind it, which the reader does not use again.
func (r *responseReader) add(p []byte) (response *http.Response, rest []byte, err error) {
	r.got = append(r.got, p...)
	for r.skipped < maxResponse {
		limits := h1.Limits{HeadBytes: maxResponse - r.skipped, LineBytes: maxResponse}
		ready, err := r.scan.Response(r.got, limits)
		if err != nil {
			return nil, nil, wordsOf(err)
		}
		if !ready {
			return nil, nil, nil
		}
		n, err := h1.ParseResponse(r.got, limits, &r.head)
		if err != nil {
			return nil, nil, wordsOf(err)
		}
		if s := r.head.Status; s >= 200 || s == http.StatusSwitchingProtocols {
			return responseOf(&r.head), r.got[n:], nil
		}
		r.got, r.scan, r.skipped = r.got[n:], h1.Scan{}, r.skipped+n
	}
	return nil, nil, errLongResponse
}

// wordsOf says why the bytes are no response, of which the caller knows the sender.
func wordsOf(err error) error {
	var bad *h1.Error
	if errors.As(err, &bad) && bad.Status != http.StatusBadRequest && bad.Status != http.StatusHTTPVersionNotSupported {
		return errLongResponse
	}
	return fmt.Errorf("it is not a response of HTTP/1.1: %w", err)
}

// responseOf makes what package net/http has of a head. The body is empty.
func responseOf(head *h1.ResponseHead) *http.Response {
	status := strconv.Itoa(head.Status)
	r := &http.Response{
		Status: status + " " + string(head.Reason), StatusCode: head.Status,
		Proto: "HTTP/" + strconv.Itoa(head.Major) + "." + strconv.Itoa(head.Minor), ProtoMajor: head.Major,
		ProtoMinor: head.Minor,
		Header:     make(http.Header, len(head.Fields)), Body: http.NoBody, ContentLength: head.ContentLength,
		Close: !head.KeepAlive,
	}
	if head.Chunked {
		r.TransferEncoding = []string{"chunked"}
	}
	for _, f := range head.Fields {
		if !f.Is("transfer-encoding") {
			name := h1.CanonicalName(f.Name)
			r.Header[name] = append(r.Header[name], string(f.Value))
		}
	}
	return r
}

// maxRefusalBody is how much of the body of a response that is not a 101 is kept.
const maxRefusalBody = 1 << 10

// A refusalBody is the beginning of the body of a response that refuses the upgrade.
type refusalBody struct {
	bytes   bytes.Buffer
	want    int // bytes to wait for
	chunked bool
	chunks  h1.Chunked
}

// newRefusalBody is for the body of a response with this head.
func newRefusalBody(head *h1.ResponseHead) *refusalBody {
	b := &refusalBody{want: maxRefusalBody, chunked: head.Chunked}
	switch {
	case head.NoBody:
		b.want = 0
	case head.ContentLength >= 0:
		b.want = int(min(head.ContentLength, maxRefusalBody))
	}
	return b
}

// add takes in bytes behind the head, and reports whether no more are needed.
func (b *refusalBody) add(p []byte) (whole bool) {
	if !b.chunked {
		b.keep(p)
		return b.bytes.Len() >= b.want
	}
	for len(p) > 0 && b.bytes.Len() < b.want {
		n, data, done, err := b.chunks.Decode(p)
		b.keep(data)
		if p = p[n:]; done || err != nil {
			return true
		}
	}
	return b.bytes.Len() >= b.want
}

func (b *refusalBody) keep(p []byte) { b.bytes.Write(p[:min(len(p), b.want-b.bytes.Len())]) }

// proxyFor asks DialOptions.Proxy, which knows of http and https as http.ProxyFromEnvironment does.
func (o *DialOptions) proxyFor(ctx context.Context, target *url.URL) (*url.URL, error) {
	if o.Proxy == nil {
		return nil, nil
	}
	asked := *target
	asked.Scheme = "http"
	if target.Scheme == "wss" {
		asked.Scheme = "https"
	}
	r := (&http.Request{Method: http.MethodGet, URL: &asked, Host: asked.Host, Header: http.Header{}}).WithContext(ctx)
	proxy, err := o.Proxy(r)
	switch {
	case err != nil:
		return nil, fmt.Errorf("DialOptions.Proxy: %w", err)
	case proxy == nil:
		return nil, nil
	}
	switch proxy.Scheme {
	case "http", "https", "socks5", "socks5h":
		if proxy.Hostname() != "" {
			return proxy, nil
		}
	}
	return nil, fmt.Errorf("DialOptions.Proxy gave %s: %w (use http, https, socks5 or socks5h, as in http://host:port)",
		proxy.Redacted(), myriad.ErrUnsupported)
}

// hostPort is a URL's host with its port, or the scheme's.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"wss": "443", "https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	}
	if port == "" {
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// through is the handler of a connection to a proxy until that has connected it to the server. Then
// next speaks for g.
func (o *DialOptions) through(e *myriad.Engine, g *greeting, next myriad.Handler, proxy, target *url.URL) (
	myriad.Handler, error) {
	d := &tunnel.Dial{Proxy: proxy, Target: hostPort(target), Next: next, Timeout: g.settings.handshakeTimeout,
		Limits: h1.Limits{HeadBytes: maxResponse, LineBytes: maxResponse}, Failed: g.proxyFailed, Over: g.done.Load}
	if strings.HasPrefix(proxy.Scheme, "socks5") {
		return tunnel.Socks(d)
	}
	if proxy.Scheme == "https" && target.Scheme == "wss" {
		inner := *d
		d.Next = tunnel.Nested(e, &inner, func(_ *myriad.Conn, err error) {
			if err != nil {
				g.finish(err)
			}
		})
	}
	p := fmt.Appendf(nil, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", d.Target, d.Target)
	if u := proxy.User; u != nil {
		p = fmt.Appendf(p, "Proxy-Authorization: %s\r\n", tunnel.BasicAuth(u))
	}
	h := tunnel.Connect(d, append(p, "\r\n"...), func(head *h1.ResponseHead) error {
		if head.Status/100 == 2 { // any 2xx connects, RFC 9110 §9.3.6
			return nil
		}
		return fmt.Errorf("it answered %d %s", head.Status, head.Reason)
	})
	if proxy.Scheme == "https" {
		h = o.secure(g, h, proxy, g.proxyFailed)
	}
	return h, nil
}

// proxyFailed ends the handshake because there is no way to the server.
func (g *greeting) proxyFailed(err error) {
	if _, is := errors.AsType[*h1.Error](err); is {
		err = wordsOf(err)
	}
	g.finish(fmt.Errorf("the proxy: %w", err))
}
