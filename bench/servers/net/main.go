// Command net is the simplest echo in Go: a goroutine and a buffer for each
// connection.
package main

import (
	"net"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

func main() {
	harness.Main(map[string]harness.Start{"echo": func(addr string) (net.Addr, error) {
		return harness.Listen(addr, func(ln net.Listener) error {
			for {
				c, err := ln.Accept()
				if err != nil {
					return err
				}
				go echo(c)
			}
		})
	}})
}

func echo(c net.Conn) {
	defer c.Close()
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}
