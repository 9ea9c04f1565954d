package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/myriad-go/myriad/examples/exampletest"
	"github.com/myriad-go/myriad/websocket"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.TestMode)
	m.Run()
}

func TestHello(t *testing.T) {
	res, err := exampletest.Client(t).Get("http://" + exampletest.Serve(t, routes()) + "/hello/Ann")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 || string(body) != `{"hello":"Ann"}` {
		t.Errorf("%d %q, %v", res.StatusCode, body, err)
	}
}

// WebSockets are accepted through gin's own ResponseWriter.
func TestEcho(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), exampletest.Patience)
	defer cancel()
	answers, ended := make(chan string, 2), make(chan error, 1)
	o := &websocket.DialOptions{Options: websocket.Options{
		OnMessage: func(_ *websocket.Conn, op websocket.Op, p []byte) { answers <- op.String() + " " + string(p) },
		OnClose:   func(_ *websocket.Conn, err error) { ended <- err },
	}}
	c, _, err := websocket.Dial(ctx, "ws://"+exampletest.Serve(t, routes())+"/echo", o)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []struct {
		op   websocket.Op
		text string
	}{{websocket.OpText, "hello"}, {websocket.OpBinary, ""}} {
		if err := c.Write(m.op, []byte(m.text)); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-answers:
			if want := m.op.String() + " " + m.text; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		case <-ctx.Done():
			t.Fatalf("no answer to %v", m)
		}
	}
	if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		if websocket.CloseStatus(err) != websocket.StatusNormalClosure {
			t.Errorf("closed with %v", err)
		}
	case <-ctx.Done():
		t.Error("the connection did not close")
	}
}

// What one client posts, another one that listens is told, and one that has left is forgotten.
func TestEvents(t *testing.T) {
	url, c := "http://"+exampletest.Serve(t, routes())+"/events", exampletest.Client(t)
	for range 2 {
		res, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
			t.Errorf("Content-Type %q", got)
		}
		post(t, c, url, "it works\nwell", 204)
		lines := bufio.NewReader(res.Body)
		for _, want := range []string{"data: it works\n", "data: well\n", "\n"} {
			if got, err := lines.ReadString('\n'); got != want {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		}
		res.Body.Close()
	}
	post(t, c, url, strings.Repeat("x", maxEvent+1), 413)
}

func post(t *testing.T, c *http.Client, url, text string, status int) {
	t.Helper()
	res, err := c.Post(url, "text/plain", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != status {
		t.Errorf("POST of %d bytes: status %d, want %d", len(text), res.StatusCode, status)
	}
}
