// Package check asks a server what it is about to be measured with, and reads the answers closely,
// by other means than the load driver. A server that does not do the whole work is refused here,
// before any clock runs. What the driver has to know of the right answers, it is told by the Talk
// that a check returns.
package check

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/myriad-go/myriad/bench/load"
)

// timeout bounds a whole check.
const timeout = 10 * time.Second

// A Check finds out whether the server at addr answers as it must.
type Check func(addr string) (load.Talk, error)

func dial(addr string) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return c, c.SetDeadline(time.Now().Add(timeout))
}

// dialTLS is for servers on this machine, which have self-signed certificates.
func dialTLS(addr string) (net.Conn, error) {
	return dialTLSWith(addr, &tls.Config{InsecureSkipVerify: true})
}

func dialTLSWith(addr string, config *tls.Config) (*tls.Conn, error) {
	c, err := dial(addr)
	if err != nil {
		return nil, err
	}
	secured := tls.Client(c, config)
	if err := secured.Handshake(); err != nil {
		c.Close()
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	if v := secured.ConnectionState().Version; v != tls.VersionTLS13 {
		c.Close()
		return nil, fmt.Errorf("the server speaks %s and not TLS 1.3", tls.VersionName(v))
	}
	return secured, nil
}

// Echo is for servers that send back every byte.
func Echo(size int) Check {
	return func(addr string) (load.Talk, error) {
		c, err := dial(addr)
		if err != nil {
			return load.Talk{}, err
		}
		defer c.Close()
		message := payload(size)
		for range 2 {
			if err := expect(c, message, message); err != nil {
				return load.Talk{}, fmt.Errorf("echo: %w", err)
			}
		}
		return load.Talk{Request: message, Requests: 1, Reply: whole(message)}, quiet(c)
	}
}

// payload is size bytes of text without a short period.
func payload(size int) []byte {
	p := make([]byte, size)
	for i := range p {
		p[i] = 'a' + byte((i*i+i/26)%26)
	}
	return p
}

func whole(reply []byte) load.Reply { return load.Reply{Size: len(reply), Prefix: reply} }

// expect sends a request and reads the reply.
func expect(c net.Conn, request, want []byte) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	return receive(c, want)
}

func receive(c net.Conn, want []byte) error {
	got := make([]byte, len(want))
	n, err := io.ReadFull(c, got)
	switch {
	case !bytes.HasPrefix(want, got[:n]):
		return fmt.Errorf("the reply is %.100q, not %.100q", got[:n], want)
	case err != nil:
		return fmt.Errorf("after %d of %d bytes: %w", n, len(want), err)
	}
	return nil
}

// quiet makes sure that nothing follows the last reply: a moment is enough to find what was sent
// along with it.
func quiet(c net.Conn) error {
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		return err
	}
	more := make([]byte, 100)
	n, err := c.Read(more)
	if timed, ok := err.(net.Error); n > 0 || !ok || !timed.Timeout() {
		return fmt.Errorf("%q, %v, is behind the last reply", more[:n], err)
	}
	return nil
}
