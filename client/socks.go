package client

import (
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/myriad-go/myriad"
)

// A socksHandler asks a SOCKS5 proxy (RFC 1928, RFC 1929) for a connection to the server, whose
// name the proxy resolves, as in net/http.
type socksHandler struct {
	dial    *dialing
	next    myriad.Handler
	step    func(p []byte) (n int, reply []byte, err error) // nil reply: it waits for more, or is done
	request []byte
	login   []byte // RFC 1929; nil: none
	kept    []byte
	done    bool
	dead    bool
}

func newSocks(d *dialing, next myriad.Handler) (*socksHandler, error) {
	s := &socksHandler{dial: d, next: next}
	s.step = s.method
	host, port, err := net.SplitHostPort(d.addr)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	s.request = []byte{5, 1, 0}
	ip := net.ParseIP(host)
	switch {
	case ip.To4() != nil:
		s.request = append(append(s.request, 1), ip.To4()...)
	case ip != nil:
		s.request = append(append(s.request, 4), ip...)
	case len(host) > 255:
		return nil, fmt.Errorf("client: the name %q is too long for SOCKS5", host)
	default:
		s.request = append(append(s.request, 3, byte(len(host))), host...)
	}
	s.request = append(s.request, byte(n>>8), byte(n))
	if u := d.proxy.User; u != nil {
		password, _ := u.Password()
		if name := u.Username(); len(name) == 0 || len(name) > 255 || len(password) > 255 {
			return nil, fmt.Errorf("client: a SOCKS5 user or password has 255 bytes at most")
		}
		s.login = append([]byte{1, byte(len(u.Username()))}, u.Username()...)
		s.login = append(append(s.login, byte(len(password))), password...)
	}
	return s, nil
}

func (s *socksHandler) Opened(c *myriad.Conn) {
	c.SetTimer(proxyTimeout)
	hello := []byte{5, 1, 0}
	if s.login != nil {
		hello = []byte{5, 2, 0, 2}
	}
	if _, err := c.Write(hello); err != nil {
		s.fail(c, err)
	}
}

// Received runs one step after the other. The proxy's answers are small: 262 bytes at most.
func (s *socksHandler) Received(c *myriad.Conn, p []byte) {
	if s.dead {
		return
	}
	s.kept = append(s.kept, p...)
	for !s.done {
		n, reply, err := s.step(s.kept)
		if err != nil {
			s.fail(c, err)
			return
		}
		if n == 0 {
			return
		}
		s.kept = s.kept[n:]
		if len(reply) > 0 {
			if _, err = c.Write(reply); err != nil {
				s.fail(c, err)
				return
			}
		}
	}
	if len(s.kept) > 0 {
		s.fail(c, ErrUnsolicited)
		return
	}
	c.SetTimer(0)
	c.SetHandler(s.next, nil)
}

// method is the proxy's choice (RFC 1928 section 3).
func (s *socksHandler) method(p []byte) (n int, reply []byte, err error) {
	switch {
	case len(p) < 2:
		return 0, nil, nil
	case p[0] != 5:
		return 0, nil, fmt.Errorf("client: the proxy speaks version %d of SOCKS", p[0])
	case p[1] == 0:
		s.step = s.connected
		return 2, s.request, nil
	case p[1] == 2 && s.login != nil:
		s.step = s.loggedIn
		return 2, s.login, nil
	}
	return 0, nil, fmt.Errorf("client: the SOCKS5 proxy takes none of our ways to log in")
}

// loggedIn is the answer to user and password (RFC 1929 section 2).
func (s *socksHandler) loggedIn(p []byte) (n int, reply []byte, err error) {
	switch {
	case len(p) < 2:
		return 0, nil, nil
	case p[0] != 1 || p[1] != 0:
		return 0, nil, fmt.Errorf("client: the SOCKS5 proxy refuses user and password")
	}
	s.step = s.connected
	return 2, s.request, nil
}

var socksReplies = [...]string{"", "general failure", "not allowed by its rules", "network unreachable",
	"host unreachable", "connection refused", "TTL expired", "command not supported", "address type not supported"}

// connected is the answer to the request (RFC 1928 section 6).
func (s *socksHandler) connected(p []byte) (n int, reply []byte, err error) {
	if len(p) < 5 {
		return 0, nil, nil
	}
	if p[0] != 5 {
		return 0, nil, fmt.Errorf("client: the proxy speaks version %d of SOCKS", p[0])
	}
	if p[1] != 0 {
		why := "code " + strconv.Itoa(int(p[1]))
		if int(p[1]) < len(socksReplies) {
			why = socksReplies[p[1]]
		}
		return 0, nil, fmt.Errorf("client: the SOCKS5 proxy: %s", why)
	}
	switch p[3] {
	case 1:
		n = 4 + 4 + 2
	case 3:
		n = 4 + 1 + int(p[4]) + 2
	case 4:
		n = 4 + 16 + 2
	default:
		return 0, nil, fmt.Errorf("client: the SOCKS5 proxy answers with address type %d", p[3])
	}
	if len(p) < n {
		return 0, nil, nil
	}
	s.done = true
	return n, nil, nil
}

func (s *socksHandler) fail(c *myriad.Conn, err error) {
	s.dead = true
	s.dial.fail(err)
	c.Abort(err)
}

func (s *socksHandler) Ended(c *myriad.Conn) { s.fail(c, io.ErrUnexpectedEOF) }

func (s *socksHandler) Expired(c *myriad.Conn) { s.fail(c, errProxyTimeout) }

func (s *socksHandler) Closed(_ *myriad.Conn, err error) { s.dial.closed(err) }
