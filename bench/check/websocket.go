package check

import (
	"bufio"
	"fmt"
	"net"
	"net/http"

	"github.com/myriad-go/myriad/bench/load"
)

// key and accept are the example of RFC 6455 §1.3.
const (
	key    = "dGhlIHNhbXBsZSBub25jZQ=="
	accept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
)

const hello = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + "\r\n\r\n"

// WebSocketEcho is for servers that send back every message, of size bytes of text.
func WebSocketEcho(size int) Check {
	talk := messages(size)
	return func(addr string) (load.Talk, error) {
		c, err := upgrade(addr)
		if err != nil {
			return talk, err
		}
		defer c.Close()
		for range 2 {
			if err := expect(c, talk.Request, talk.Reply.Prefix); err != nil {
				return talk, fmt.Errorf("echo: %w", err)
			}
		}
		return talk, quiet(c)
	}
}

// WebSocketBroadcast is for servers that send every message to all connections, the one it came
// from among them.
func WebSocketBroadcast(size int) Check {
	talk := messages(size)
	return func(addr string) (load.Talk, error) {
		var members []net.Conn
		for range 3 {
			c, err := upgrade(addr)
			if err != nil {
				return talk, err
			}
			defer c.Close()
			members = append(members, c)
		}
		// An upgrade may be answered before the server has noted the member. What the others send
		// cannot tell when it has, but what a member gets back from itself does.
		for i, sender := range members {
			if _, err := sender.Write(talk.Request); err != nil {
				return talk, err
			}
			for _, c := range members[:i+1] {
				if err := receive(c, talk.Reply.Prefix); err != nil {
					return talk, fmt.Errorf("broadcast: %w", err)
				}
			}
		}
		return talk, nil
	}
}

func messages(size int) load.Talk {
	p := payload(size)
	return load.Talk{
		Hello: []byte(hello), Welcome: []byte("HTTP/1.1 101 "),
		Request: load.ClientFrame(p), Requests: 1, Reply: whole(load.ServerFrame(p)),
	}
}

func upgrade(addr string) (net.Conn, error) {
	c, err := dial(addr)
	if err != nil {
		return nil, err
	}
	if err := shakeHands(c); err != nil {
		c.Close()
		return nil, fmt.Errorf("handshake: %w", err)
	}
	return c, nil
}

func shakeHands(c net.Conn) error {
	if _, err := c.Write([]byte(hello)); err != nil {
		return err
	}
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	if err := switched(res); err != nil {
		return err
	}
	if r.Buffered() > 0 {
		return fmt.Errorf("%d bytes follow the handshake", r.Buffered())
	}
	return nil
}

// switched checks the answer to an upgrade that offered no extension.
func switched(res *http.Response) error {
	switch {
	case res.StatusCode != http.StatusSwitchingProtocols:
		return fmt.Errorf("the status is %q, not 101", res.Status)
	case res.Header.Get("Sec-WebSocket-Accept") != accept:
		return fmt.Errorf("Sec-WebSocket-Accept is %q, not %q", res.Header.Get("Sec-WebSocket-Accept"), accept)
	case res.Header.Get("Sec-WebSocket-Extensions") != "":
		return fmt.Errorf("an extension that was not offered: %q", res.Header.Get("Sec-WebSocket-Extensions"))
	}
	return nil
}
