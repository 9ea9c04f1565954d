// Command engine is the bare engine: what arrives is written back, or answered with the same bytes
// always.
package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/bench/servers/harness"
)

func main() {
	harness.Main(map[string]harness.Start{
		"echo": func(addr string) (net.Addr, error) { return listen(addr, echo{}) },
		"http": func(addr string) (net.Addr, error) { return listen(addr, newFixed()) },
	})
}

func listen(addr string, h myriad.Handler) (net.Addr, error) {
	engine, err := myriad.Default()
	if err != nil {
		return nil, err
	}
	ln, err := engine.Listen("tcp", addr, h)
	if err != nil {
		return nil, err
	}
	return ln.Addr(), nil
}

type echo struct{}

func (echo) Opened(*myriad.Conn)        {}
func (echo) Closed(*myriad.Conn, error) {}

func (echo) Received(c *myriad.Conn, p []byte) {
	if _, err := c.Write(p); err != nil {
		c.Abort(err)
	}
}

// fixed takes what comes in one piece for whole requests, which is true of small ones, and counts
// their ends.
type fixed struct {
	echo
	answer []byte
}

func newFixed() fixed {
	return fixed{answer: fmt.Appendf(nil,
		"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nDate: %s\r\nContent-Length: %d\r\n\r\n%s",
		harness.ContentType, time.Now().UTC().Format(http.TimeFormat), len(harness.Answer), harness.Answer)}
}

func (f fixed) Received(c *myriad.Conn, p []byte) {
	for range bytes.Count(p, []byte("\r\n\r\n")) {
		if _, err := c.Write(f.answer); err != nil {
			c.Abort(err)
			return
		}
	}
}
