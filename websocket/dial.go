package websocket

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h1"
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
	opts := tlsloop.Options{Timeout: orNever(g.settings.handshakeTimeout), Failed: g.untrusted}
	opts.Closed = func(_ *myriad.Conn, err error) {
		if err == nil {
			err = myriad.ErrClosed
		}
		failed(err)
	}
	return opts.Client(o.tlsFor(host), next)
}

// orNever is a timeout for functions that take 0 for their default.
func orNever(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
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

// maskKey is fresh for every frame, §5.3.
func (s *settings) maskKey() (uint32, error) {
	var key [4]byte
	if _, err := s.random.Read(key[:]); err != nil {
		return 0, fmt.Errorf("websocket: DialOptions.Random: %w", err)
	}
	return binary.LittleEndian.Uint32(key[:]), nil
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
	if len(s.subprotocols) > 0 {
		p = fmt.Appendf(p, "Sec-WebSocket-Protocol: %s\r\n", strings.Join(s.subprotocols, ", "))
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
