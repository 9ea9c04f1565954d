package websocket

import (
	"context"
	"crypto/rand"
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

	"github.com/myriad-go/myriad"
)

// DialOptions say how to connect. Like Options, one value serves any number of connections and must not be changed or copied once it
// has been used. OriginPatterns mean nothing here.
type DialOptions struct {
	Options

	// Header is sent with the handshake, for instance Origin, Authorization or Cookie. The fields of the handshake itself
	// and those that HTTP/1.1 frames a request with are refused.
	Header http.Header
	// Host replaces the Host field.
	Host string
	// Random is the source of handshake keys and frame masks, which have to be unpredictable for the sake of others (RFC 6455
	// §10.3). It is read by one goroutine at a time. Nil: crypto/rand.
	Random io.Reader

	dialing atomic.Pointer[settings]
}

// Dial opens a WebSocket to a URL like "ws://example.com/chat". It waits until the server has agreed, ctx ends or
// Options.HandshakeTimeout has passed; a failed Dial calls no callback. The response is returned as far as there is one, also
// with an error, for instance with the server's 401; its Body has at most 1 KiB and needs no closing. OnOpen may have been called
// when Dial returns. "wss" is not supported yet: myriad.ErrUnsupported. Any goroutine but a loop's.
func Dial(ctx context.Context, address string, o *DialOptions) (*Conn, *http.Response, error) {
	s, err := o.settings()
	if err != nil {
		return nil, nil, err
	}
	target, err := parseAddress(address)
	if err != nil {
		return nil, nil, err
	}
	g, err := o.greeting(s, target)
	if err != nil {
		return nil, nil, err
	}
	e, err := s.on()
	if err != nil {
		return nil, nil, err
	}
	g.waiter = e.System().NewParker()
	mc, err := e.Dial(ctx, "tcp", target.Host, g)
	if err != nil {
		return nil, nil, fmt.Errorf("websocket: Dial %s: %w", address, err)
	}
	if err = g.wait(ctx, mc); err != nil {
		return nil, g.response, fmt.Errorf("websocket: Dial %s: %w", address, err)
	}
	return g.conn, g.response, nil
}

func (o *DialOptions) settings() (*settings, error) {
	if o == nil {
		return nil, errors.New("websocket: the DialOptions are nil: give a pointer to a value that lives as long as its connections")
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

// parseAddress gives a URL whose Host has a port.
func parseAddress(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, fmt.Errorf("websocket: Dial: %w", err)
	case u.Scheme == "wss":
		return nil, fmt.Errorf("websocket: Dial %s: wss is %w: use ws", address, myriad.ErrUnsupported)
	case u.Scheme != "ws":
		return nil, fmt.Errorf("websocket: Dial %s: the scheme is %q: use ws", address, u.Scheme)
	case u.Hostname() == "":
		return nil, fmt.Errorf("websocket: Dial %s: there is no host in it", address)
	case strings.Contains(address, "#"):
		return nil, fmt.Errorf("websocket: Dial %s: a WebSocket's address has no fragment (RFC 6455 section 3)", address)
	case u.User != nil:
		return nil, errors.New("websocket: Dial: the address has a user in it: use DialOptions.Header for Authorization")
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "80")
	}
	return u, nil
}

// checkHeader refuses what the handshake writes itself, and what could smuggle something else into it.
func checkHeader(header http.Header) error {
	for name, values := range header {
		switch lower := strings.ToLower(name); {
		case !isToken(name):
			return fmt.Errorf("websocket: DialOptions.Header has the name %q: it must be a token", name)
		case strings.HasPrefix(lower, "sec-websocket-"), lower == "host", lower == "connection", lower == "upgrade",
			lower == "content-length", lower == "transfer-encoding", lower == "trailer", lower == "te", lower == "expect":
			return fmt.Errorf("websocket: DialOptions.Header has %s, which the handshake is made of: use the fields of DialOptions", name)
		}
		for _, v := range values {
			if _, _, ok := cutField([]byte("x:" + v)); !ok {
				return fmt.Errorf("websocket: DialOptions.Header has a control character in %s", name)
			}
		}
	}
	return nil
}

// greeting makes the request.
func (o *DialOptions) greeting(s *settings, u *url.URL) (*greeting, error) {
	var nonce [16]byte
	if _, err := s.random.Read(nonce[:]); err != nil {
		return nil, fmt.Errorf("websocket: DialOptions.Random: %w", err)
	}
	key := base64.StdEncoding.EncodeToString(nonce[:])
	host := o.Host
	if host == "" {
		host = strings.TrimSuffix(u.Host, ":80")
	}
	for i := range len(host) {
		if c := host[i]; c <= ' ' || c >= 0x7f {
			return nil, fmt.Errorf("websocket: Host %q: it must be a host name with an optional port", host)
		}
	}
	p := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\n"+upgradeLines+versionLine+"Sec-WebSocket-Key: %s\r\n", u.RequestURI(), host, key)
	if len(s.subprotocols) > 0 {
		p = fmt.Appendf(p, "Sec-WebSocket-Protocol: %s\r\n", strings.Join(s.subprotocols, ", "))
	}
	if s.packing.policy.on {
		p = fmt.Appendf(p, "Sec-WebSocket-Extensions: %s\r\n", s.packing.policy.offer().append(nil))
	}
	for _, name := range slices.Sorted(maps.Keys(o.Header)) {
		for _, v := range o.Header[name] {
			p = fmt.Appendf(p, "%s: %s\r\n", name, v)
		}
	}
	return &greeting{settings: s, request: append(p, "\r\n"...), key: key}, nil
}
