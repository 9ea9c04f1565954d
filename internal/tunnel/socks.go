package tunnel

import (
	"fmt"
	"net"
	"strconv"

	"github.com/myriad-go/myriad"
)

// A socks asks a SOCKS5 proxy.
type socks struct {
	base
	step    func(p []byte) (n int, reply []byte, err error) // nil reply: it waits for more, or is done
	request []byte
	login   []byte // RFC 1929; nil: none
	kept    []byte
	done    bool
}

// Socks is the handler of a conn to a SOCKS5 proxy. The proxy resolves the server's name, as in
// net/http. It fails for a target or a user that SOCKS5 has no form for.
func Socks(d *Dial) (myriad.Handler, error) {
	s := &socks{base: base{Dial: d}}
	s.step = s.method
	host, port, err := net.SplitHostPort(d.Target)
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
		return nil, fmt.Errorf("the name %q is too long for SOCKS5", host)
	default:
		s.request = append(append(s.request, 3, byte(len(host))), host...)
	}
	s.request = append(s.request, byte(n>>8), byte(n))
	if u := d.Proxy.User; u != nil {
		password, _ := u.Password()
		if name := u.Username(); len(name) == 0 || len(name) > 255 || len(password) > 255 {
			return nil, fmt.Errorf("a SOCKS5 user or password has 255 bytes at most")
		}
		s.login = append([]byte{1, byte(len(u.Username()))}, u.Username()...)
		s.login = append(append(s.login, byte(len(password))), password...)
	}
	return s, nil
}

func (s *socks) Opened(c *myriad.Conn) {
	if !s.open(c) {
		return
	}
	hello := []byte{5, 1, 0}
	if s.login != nil {
		hello = []byte{5, 2, 0, 2}
	}
	if _, err := c.Write(hello); err != nil {
		s.fail(c, err)
	}
}

// Received is the proxy's part.
func (s *socks) Received(c *myriad.Conn, p []byte) {
	if s.dead {
		return
	}
	reply, err := s.advance(p)
	if err == nil && len(reply) > 0 {
		_, err = c.Write(reply)
	}
	switch {
	case err != nil:
		s.fail(c, err)
	case s.done:
		s.stands(c, s.kept)
	}
}

// advance runs one step after the other, as far as the proxy's bytes allow. What it keeps is small:
// an answer has 262 bytes at most.
func (s *socks) advance(p []byte) (reply []byte, err error) {
	s.kept = append(s.kept, p...)
	for !s.done {
		n, r, err := s.step(s.kept)
		if err != nil || n == 0 {
			return reply, err
		}
		s.kept, reply = s.kept[n:], append(reply, r...)
	}
	return reply, nil
}

// method is the proxy's choice (RFC 1928 section 3).
func (s *socks) method(p []byte) (n int, reply []byte, err error) {
	switch {
	case len(p) < 2:
		return 0, nil, nil
	case p[0] != 5:
		return 0, nil, fmt.Errorf("the proxy speaks version %d of SOCKS", p[0])
	case p[1] == 0:
		s.step = s.connected
		return 2, s.request, nil
	case p[1] == 2 && s.login != nil:
		s.step = s.loggedIn
		return 2, s.login, nil
	}
	return 0, nil, fmt.Errorf("the SOCKS5 proxy takes none of our ways to log in")
}

// loggedIn is the answer to user and password (RFC 1929 section 2).
func (s *socks) loggedIn(p []byte) (n int, reply []byte, err error) {
	switch {
	case len(p) < 2:
		return 0, nil, nil
	case p[0] != 1 || p[1] != 0:
		return 0, nil, fmt.Errorf("the SOCKS5 proxy refuses user and password")
	}
	s.step = s.connected
	return 2, s.request, nil
}

var socksReplies = [...]string{"", "general failure", "not allowed by its rules", "network unreachable",
	"host unreachable", "connection refused", "TTL expired", "command not supported", "address type not supported"}

// connected is the answer to the request (RFC 1928 section 6).
func (s *socks) connected(p []byte) (n int, reply []byte, err error) {
	if len(p) < 5 {
		return 0, nil, nil
	}
	if p[0] != 5 {
		return 0, nil, fmt.Errorf("the proxy speaks version %d of SOCKS", p[0])
	}
	if p[1] != 0 {
		why := "code " + strconv.Itoa(int(p[1]))
		if int(p[1]) < len(socksReplies) {
			why = socksReplies[p[1]]
		}
		return 0, nil, fmt.Errorf("the SOCKS5 proxy: %s", why)
	}
	switch p[3] {
	case 1:
		n = 4 + 4 + 2
	case 3:
		n = 4 + 1 + int(p[4]) + 2
	case 4:
		n = 4 + 16 + 2
	default:
		return 0, nil, fmt.Errorf("the SOCKS5 proxy answers with address type %d", p[3])
	}
	if len(p) < n {
		return 0, nil, nil
	}
	s.done = true
	return n, nil, nil
}
