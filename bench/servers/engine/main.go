// Command engine is the bare engine: what arrives is written back.
package main

import (
	"net"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/bench/servers/harness"
)

func main() {
	harness.Main(map[string]harness.Start{"echo": func(addr string) (net.Addr, error) {
		engine, err := myriad.Default()
		if err != nil {
			return nil, err
		}
		ln, err := engine.Listen("tcp", addr, echo{})
		if err != nil {
			return nil, err
		}
		return ln.Addr(), nil
	}})
}

type echo struct{}

func (echo) Opened(*myriad.Conn)        {}
func (echo) Closed(*myriad.Conn, error) {}

func (echo) Received(c *myriad.Conn, p []byte) {
	if _, err := c.Write(p); err != nil {
		c.Abort(err)
	}
}
