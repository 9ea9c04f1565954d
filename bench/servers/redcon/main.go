// Command redcon serves the Redis protocol with github.com/tidwall/redcon: a goroutine for each
// connection.
package main

import (
	"net"
	"time"

	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/tidwall/redcon"
)

func main() {
	harness.Main(map[string]harness.Start{"resp": func(addr string) (net.Addr, error) {
		return harness.Listen(addr, func(ln net.Listener) error { return redcon.Serve(ln, answer, nil, nil) })
	}})
}

var keys harness.Keys

func answer(c redcon.Conn, cmd redcon.Command) {
	switch string(cmd.Args[0]) {
	case "SET":
		keys.Set(cmd.Args[1], cmd.Args[2])
		c.WriteString("OK")
	case "GET":
		value, ok := keys.AppendGet(nil, cmd.Args[1])
		if !ok {
			c.WriteNull()
			return
		}
		c.WriteBulk(value)
	case "PING":
		c.WriteString("PONG")
	case "SLEEP":
		time.Sleep(harness.Delay)
		c.WriteString("OK")
	default:
		c.WriteError("ERR unknown command '" + string(cmd.Args[0]) + "'")
	}
}
