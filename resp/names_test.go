package resp

import (
	"fmt"
	"testing"
)

// Names that peers make up do not keep the server's own commands from being known.
func TestMadeUpNames(t *testing.T) {
	p := dial(t, serve(t, &Server{Handler: HandlerFunc(func(w *Reply, _ *Command) { w.Null() })}))
	for i := range maxNames + 10 {
		p.send(fmt.Sprintf("MADE-UP-%d\r\n", i)).want("$-1\r\n")
	}
	p.send("PING\r\nCLIENT SETNAME a\r\nQUIT\r\n").want("+PONG\r\n+OK\r\n+OK\r\n")
}
