package resp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/resp/wire"
)

// A command to which no reply of its own comes is refused, and harms no other.
func TestClientRefusesWhatHasNoReply(t *testing.T) {
	eachServer(t, func(t *testing.T, c *Client) {
		ctx := ctxOf(t)
		for _, args := range [][]string{{}, {"SUBSCRIBE", "a"}, {"psubscribe", "a"}, {"Unsubscribe"}, {"PUNSUBSCRIBE"},
			{"SSUBSCRIBE", "a"}, {"SUNSUBSCRIBE"}, {"MONITOR"}, {"SYNC"}, {"PSYNC", "?", "-1"},
			{"CLIENT", "reply", "OFF"}} {
			if _, err := c.Do(ctx, args...); err == nil || !strings.Contains(err.Error(), "was not sent") {
				t.Errorf("Do of %q: %v", args, err)
			}
			ended := 0
			c.Start(func(_ Value, err error) {
				if ended++; err == nil {
					t.Errorf("Start of %q succeeds", args)
				}
			}, args...)
			if ended != 1 {
				t.Errorf("Start of %q has ended %d times", args, ended)
			}
		}
		for _, args := range [][]string{{"ECHO", "SUBSCRIBE"}, {"CLIENT", "GETNAME"}, {"PING"}} {
			if _, err := c.Do(ctx, args...); err != nil {
				t.Errorf("%q: %v", args, err)
			}
		}
		if _, err := c.Subscribe(ctx, func(string, []byte) {}); err == nil {
			t.Error("it subscribes to no channel")
		}
		if _, err := c.Subscribe(ctx, nil, "a"); err == nil {
			t.Error("it subscribes without a function")
		}
	})
}

// A command may be longer than what the engine takes in one write.
func TestClientSendsLargeCommands(t *testing.T) {
	e, err := myriad.Start(myriad.Config{Loops: 1, Logger: quiet(), MaxWrite: 512 << 10})
	if err != nil {
		t.Fatal(err)
	}
	c := &Client{Addr: serve(t, &Server{}), Engine: e}
	t.Cleanup(func() {
		_ = c.Close() // always nil
		if err := e.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	ctx := ctxOf(t)
	text := strings.Repeat("0123456789abcdef", 3<<20/16)
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			if v, err := c.Do(ctx, "ECHO", text[i:]); err != nil || v.Text() != text[i:] {
				t.Errorf("ECHO of %d bytes: %d bytes, %v", len(text)-i, len(v.Str), err)
			}
			if v, err := c.Do(ctx, "ECHO", fmt.Sprint(i)); err != nil || v.Text() != fmt.Sprint(i) {
				t.Errorf("behind it: %v, %v", v, err)
			}
		})
	}
	wg.Wait()
}

// scripted serves one connection after the other, each by the next of these functions, behind the
// client's HELLO.
func scripted(t *testing.T, each ...func(nc net.Conn, r *bufio.Reader)) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, f := range each {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			f(nc, bufio.NewReader(nc))
			nc.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-ended })
	return ln.Addr().String()
}

// hello answers HELLO.
func hello(nc net.Conn, r *bufio.Reader) {
	_, _ = io.CopyN(io.Discard, r, int64(len("*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n")))
	_, _ = io.WriteString(nc, "%0\r\n")
}

// A command of which a connection has taken only a part is sent again, all of it.
func TestClientSendsPartAgain(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 12<<20/16)
	want := string(wire.AppendCommand(nil, "ECHO", text))
	got := make([]byte, len(want))
	addr := scripted(t,
		func(nc net.Conn, r *bufio.Reader) {
			_ = nc.(*net.TCPConn).SetReadBuffer(64 << 10) // so that 12 MiB do not fit into the kernel
			hello(nc, r)
			_, _ = io.CopyN(io.Discard, r, 1<<20)
		},
		func(nc net.Conn, r *bufio.Reader) {
			hello(nc, r)
			_, _ = io.ReadFull(r, got)
			_, _ = io.WriteString(nc, "+OK\r\n")
			_, _ = io.Copy(io.Discard, r)
		})
	c := clientOf(t, &Client{Addr: addr, Conns: 1})
	if v, err := c.Do(ctxOf(t), "ECHO", text); err != nil || v.Text() != "OK" {
		t.Errorf("%v, %v", v, err)
	}
	if string(got) != want {
		t.Error("the second connection got something else")
	}
	_ = c.Close()
}

// ErrLost says that a command was sent. One that waits for a connection which is never ready was
// not.
func TestClientLosesOnlyWhatItSent(t *testing.T) {
	ctx := ctxOf(t)
	gone := func(net.Conn, *bufio.Reader) {}
	silent := func(_ net.Conn, r *bufio.Reader) { _, _ = r.ReadByte() }
	c := clientOf(t, &Client{Addr: scripted(t, gone, silent, gone), Conns: 1})
	for range 3 {
		if _, err := c.Do(ctx, "PING"); err == nil || errors.Is(err, ErrLost) {
			t.Errorf("without a connection that is ready: %v", err)
		}
	}
	socket := redis(t)
	for range 20 {
		bad := clientOf(t, &Client{Network: "unix", Addr: socket, DB: 99, Conns: 1})
		for range 3 {
			_, err := bad.Do(ctx, "PING")
			if errors.Is(err, ErrLost) || !strings.Contains(fmt.Sprint(err), "refuses SELECT: ERR DB index") {
				t.Errorf("with a database that there is not: %v", err)
			}
		}
		_ = bad.Close()
	}
}
