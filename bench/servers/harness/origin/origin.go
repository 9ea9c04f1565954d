// Package origin is the server that the clients under test ask: a process of its own, so that only
// the client's memory and processor time are measured. Its program is the client's, started again.
package origin

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/bench/servers/harness"
)

// command is the argument that makes a program the origin.
const command = "origin"

// Main is the origin, if the program was started as one; then it does not return. Call it first.
func Main() {
	if len(os.Args) < 2 || os.Args[1] != command {
		return
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve() error {
	e, err := myriad.Start(myriad.Config{Loops: 1})
	if err != nil {
		return err
	}
	ln, err := e.Listen("tcp", "127.0.0.1:0", &answers{})
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	_, err = io.Copy(io.Discard, os.Stdin) // it ends with its parent
	return err
}

// lifelines are open until this process ends: then the origins end, too.
var lifelines []io.Closer

// Start starts the origin and returns its address.
func Start() (addr string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(context.Background(), self, command)
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	lifelines = append(lifelines, lifeline)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err = cmd.Start(); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	return strings.TrimSpace(line), err
}

// URL is what a client asks for: an answer at once, or after a delay.
func URL(addr string, delay time.Duration) string {
	if delay > 0 {
		return fmt.Sprintf("http://%s/after?%d", addr, delay.Milliseconds())
	}
	return "http://" + addr + harness.Path
}

var answer = fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
	harness.ContentType, len(harness.Answer), harness.Answer)

// answers serves requests without a body, one at a time on each connection.
type answers struct{}

func (*answers) Opened(*myriad.Conn)        {}
func (*answers) Closed(*myriad.Conn, error) {}
func (*answers) Expired(c *myriad.Conn)     { _, _ = c.Write(answer) }

// Received answers each request that ends in p. Clients send a head in one piece.
func (*answers) Received(c *myriad.Conn, p []byte) {
	for {
		head, rest, whole := bytes.Cut(p, []byte("\r\n\r\n"))
		if !whole {
			return
		}
		delay := 0
		if _, query, ok := bytes.Cut(head, []byte("/after?")); ok {
			_, _ = fmt.Fscanf(bytes.NewReader(query), "%d", &delay)
		}
		if delay > 0 {
			c.SetTimer(time.Duration(delay) * time.Millisecond)
		} else {
			_, _ = c.Write(answer)
		}
		p = rest
	}
}
