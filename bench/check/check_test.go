package check

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/bench/load"
)

// peer serves connections one after the other until the test ends.
func peer(t *testing.T, serve func(c net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serve(c)
			c.Close()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
	})
	return ln.Addr().String()
}

const (
	date    = "Date: Mon, 02 Jan 2006 15:04:05 GMT\r\n"
	plain   = "Content-Type: text/plain\r\n"
	whole13 = "Content-Length: 13\r\n\r\nHello, World!"
)

// answering sends the next of these texts for each request, the last one over and over.
func answering(texts ...string) func(c net.Conn) {
	return func(c net.Conn) {
		r := bufio.NewReader(c)
		for i := 0; ; i++ {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			if _, err := io.WriteString(c, texts[min(i, len(texts)-1)]); err != nil {
				return
			}
		}
	}
}

func TestHTTP(t *testing.T) {
	right := "HTTP/1.1 200 OK\r\n" + date + plain + whole13
	for _, tt := range []struct {
		answers []string
		err     string
	}{
		{[]string{right}, ""},
		{[]string{"HTTP/1.1 404 Not Found\r\n" + date + plain + whole13}, "not 200"},
		{[]string{"HTTP/1.1 200 OK\r\n" + plain + whole13}, "the Date"},
		{[]string{"HTTP/1.1 200 OK\r\n" + date + whole13}, "Content-Type"},
		{[]string{"HTTP/1.1 200 OK\r\n" + date + plain + "Content-Length: 5\r\n\r\nHello"}, "the body"},
		{[]string{"HTTP/1.1 200 OK\r\n" + date + plain +
			"Transfer-Encoding: chunked\r\n\r\nd\r\nHello, World!\r\n0\r\n\r\n"}, "framed by"},
		{[]string{"HTTP/1.1 200 OK\r\n" + date + plain + "Connection: close\r\n" + whole13}, "not kept"},
		{[]string{"HTTP/1.0 200 OK\r\n" + date + plain + whole13}, "not kept"},
		{[]string{right + "!"}, "malformed"},
		{[]string{right, right + "!"}, "behind the last reply"},
		{[]string{right, strings.Replace(right, "200 OK", "200 Okay", 1)}, "size of the others"},
		{[]string{"gibberish\r\n\r\n"}, "malformed"},
	} {
		talk, err := HTTP(1)(peer(t, answering(tt.answers...)))
		if tt.err == "" && err != nil || tt.err != "" && !strings.Contains(fmt.Sprint(err), tt.err) {
			t.Errorf("%q: %v, not %q", tt.answers, err, tt.err)
		}
		if err == nil && talk.Reply.Size != len(right) {
			t.Errorf("the size is %d, not %d", talk.Reply.Size, len(right))
		}
	}
	if talk, err := HTTP(16)(peer(t, answering(right))); err != nil || talk.Requests != 16 ||
		talk.Reply.Size != len(right) {
		t.Errorf("pipelined: %+v, %v", talk, err)
	}
}

func TestEcho(t *testing.T) {
	for name, tt := range map[string]struct {
		serve func(c net.Conn)
		err   string
	}{
		"echo":  {func(c net.Conn) { _, _ = io.Copy(c, c) }, ""},
		"upper": {func(c net.Conn) { _, _ = io.Copy(c, upper{c}) }, "the reply is"},
		"ends":  {func(c net.Conn) { _, _ = io.CopyN(c, c, 40) }, "echo"},
	} {
		if _, err := Echo(64)(peer(t, tt.serve)); tt.err == "" && err != nil ||
			!strings.Contains(fmt.Sprint(err), tt.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type upper struct{ io.Reader }

func (u upper) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	copy(p, strings.ToUpper(string(p[:n])))
	return n, err
}

func TestWebSocket(t *testing.T) {
	head := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
	right := string(load.ServerFrame(payload(20)))
	for _, tt := range []struct{ answer, frame, err string }{
		{head + "Sec-WebSocket-Accept: " + accept + "\r\n\r\n", right, ""},
		{head + "Sec-WebSocket-Accept: " + key + "\r\n\r\n", right, "Sec-WebSocket-Accept is"},
		{head + "Sec-WebSocket-Accept: " + accept + "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n", right,
			"an extension"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", right, "not 101"},
		{head + "Sec-WebSocket-Accept: " + accept + "\r\n\r\n!", right, "follow the handshake"},
		{head + "Sec-WebSocket-Accept: " + accept + "\r\n\r\n", strings.Replace(right, "\x81", "\x82", 1),
			"the reply is"},
	} {
		addr := peer(t, func(c net.Conn) {
			r := bufio.NewReader(c)
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			for _, err := io.WriteString(c, tt.answer); err == nil; _, err = io.WriteString(c, tt.frame) {
				if _, err := io.ReadFull(r, make([]byte, len(load.ClientFrame(payload(20))))); err != nil {
					return
				}
			}
		})
		if _, err := WebSocketEcho(20)(addr); tt.err == "" && err != nil || !strings.Contains(fmt.Sprint(err), tt.err) {
			t.Errorf("%q %q: %v, not %q", tt.answer, tt.frame, err, tt.err)
		}
	}
}
