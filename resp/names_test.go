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

// A Mux with more commands than a lane's table may have names serves all of them, as they were
// declared and in small letters.
func TestMuxWithManyCommands(t *testing.T) {
	m := NewMux()
	const commands = maxNames + 200
	for i := range commands {
		m.Handle(fmt.Sprintf("COMMAND-%d", i), 1, func(w *Reply, _ *Command) { w.Int(int64(i)) }, "Return a number.")
	}
	p := dial(t, serve(t, &Server{Handler: m}))
	for i := range commands {
		p.send(fmt.Sprintf("COMMAND-%d\r\ncommand-%d\r\n", i, i)).want(fmt.Sprintf(":%d\r\n:%d\r\n", i, i))
	}
}
