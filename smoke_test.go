package myriad_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

type echo struct{}

func (echo) Opened(*myriad.Conn)               {}
func (echo) Received(c *myriad.Conn, p []byte) { c.Write(p) }
func (echo) Closed(*myriad.Conn, error)        {}

func TestSmoke(t *testing.T) {
	e, err := myriad.Start(myriad.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := e.Listen("tcp", "127.0.0.1:0", echo{})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		msg := bytes.Repeat([]byte("0123456789"), 100000)
		go func() { nc.Write(msg); nc.(*net.TCPConn).CloseWrite() }()
		got, err := io.ReadAll(nc)
		if err != nil || !bytes.Equal(got, msg) {
			t.Fatalf("got %d bytes, %v", len(got), err)
		}
		nc.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := e.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", e.Stats())
}
