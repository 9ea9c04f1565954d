// Command first is the first step of docs/guides/protocol.md: it sends back what it gets.
//
//	go run ./examples/frames/first
package main

import (
	"log"

	"github.com/myriad-go/myriad"
)

type echo struct{}

func (echo) Opened(c *myriad.Conn)             {}
func (echo) Received(c *myriad.Conn, p []byte) { c.Write(p) }
func (echo) Closed(c *myriad.Conn, err error)  {}

func main() {
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := engine.Listen("tcp", "127.0.0.1:7000", echo{}); err != nil {
		log.Fatal(err)
	}
	select {} // the engine's loops serve
}
