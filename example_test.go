package myriad_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log"
	"time"

	"github.com/myriad-go/myriad"
)

// A lineEcho answers each line in capitals. Every conn has one of its own, which keeps a line that
// is not complete yet.
type lineEcho struct{ partial []byte }

// maxLine bounds what one conn can make us keep.
const maxLine = 1 << 10

func (h *lineEcho) Opened(*myriad.Conn) {}

func (h *lineEcho) Received(c *myriad.Conn, p []byte) {
	h.partial = append(h.partial, p...)
	for {
		line, rest, ok := bytes.Cut(h.partial, []byte("\n"))
		if !ok {
			break
		}
		if _, err := c.Write(append(bytes.ToUpper(line), '\n')); err != nil {
			c.Abort(err) // the peer does not read its answers
			return
		}
		h.partial = rest
	}
	if len(h.partial) > maxLine {
		c.Close()
	}
}

func (h *lineEcho) Closed(*myriad.Conn, error) {}

// A serverHandler gives every conn it is opened on a handler of its own.
type serverHandler struct{}

func (serverHandler) Opened(c *myriad.Conn)         { c.SetHandler(&lineEcho{}, nil) }
func (serverHandler) Received(*myriad.Conn, []byte) {}
func (serverHandler) Closed(*myriad.Conn, error)    {}

// A server of lines on the event loops, and a client with the blocking view of a conn.
func Example() {
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Shutdown(context.Background())
	listener, err := engine.Listen("tcp", "127.0.0.1:0", serverHandler{})
	if err != nil {
		log.Fatal(err)
	}

	handler, conn := myriad.Stream(0)
	defer conn.Close()
	if _, err := engine.Dial(context.Background(), "tcp", listener.Addr().String(), handler); err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(conn, "one\ntwo\n")
	answers := bufio.NewScanner(conn)
	for range 2 {
		answers.Scan()
		fmt.Println(answers.Text())
	}
	// Output:
	// ONE
	// TWO
}

func ExampleTimers() {
	// A session asks its client for a sign of life after ten seconds, and ends after thirty. As its
	// Received sets both again, both count from the last bytes.
	const ask, end = 0, 1
	var timers myriad.Timers
	alive := func(c *myriad.Conn) {
		timers.Set(c, ask, 10*time.Second)
		timers.Set(c, end, 30*time.Second)
	}
	expired := func(c *myriad.Conn) {
		for number := range timers.Expired(c) {
			switch number {
			case ask:
				c.Write([]byte("PING\n"))
			case end:
				c.Close()
			}
		}
	}
	_, _ = alive, expired
}
