package webtest

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/websocket"
)

// A Socket is the client of a WebSocket that Dial has opened. Its methods, other than the Conn's
// own, belong to the test's goroutine.
type Socket struct {
	*websocket.Conn
	// Response is the server's 101.
	Response *http.Response

	t testing.TB
}

// Dial opens a WebSocket with r, as httptest.NewRequest makes it, on a server of its own that
// serves h. Of r it sends the path, the query and the header, where Sec-WebSocket-Protocol offers
// subprotocols. Both ends end with the test. It fails the test if the handshake is refused.
func Dial(t testing.TB, h http.Handler, r *http.Request) *Socket {
	t.Helper()
	s := NewServer(h)
	t.Cleanup(s.Close)
	return s.Dial(t, r)
}

// Dial is the function Dial for this server.
func (s *Server) Dial(t testing.TB, r *http.Request) *Socket {
	t.Helper()
	header := r.Header.Clone()
	o := &websocket.DialOptions{Options: websocket.Options{Engine: s.Config.Engine, Pull: true}, Header: header,
		TLSConfig: s.trust()}
	for _, line := range header["Sec-Websocket-Protocol"] {
		for name := range strings.SplitSeq(line, ",") {
			o.Subprotocols = append(o.Subprotocols, strings.TrimSpace(name))
		}
	}
	header.Del("Sec-WebSocket-Protocol")
	url := "ws" + strings.TrimPrefix(s.URL, "http") + r.URL.RequestURI()
	c, res, err := websocket.Dial(context.WithoutCancel(r.Context()), url, o)
	if err != nil {
		t.Fatalf("webtest: open a WebSocket at %s: %v", r.URL, err)
	}
	t.Cleanup(func() { c.Abort(nil) })
	return &Socket{c, res, t}
}

// Send writes a text message. It fails the test if that fails.
func (s *Socket) Send(text string) {
	s.t.Helper()
	if err := s.Write(websocket.OpText, []byte(text)); err != nil {
		s.t.Fatalf("webtest: send %q: %v", text, err)
	}
}

// Receive waits for the next message, of either kind, and returns it. It fails the test if the
// connection ends before.
func (s *Socket) Receive() string {
	s.t.Helper()
	_, p, err := s.Read(s.t.Context())
	if err != nil {
		s.t.Fatalf("webtest: wait for a message: %v", err)
	}
	return string(p)
}

// Closed waits for the end of the connection and returns the status of the close frame that has
// come, or 0 if none has. It fails the test for a message that comes before.
func (s *Socket) Closed() websocket.StatusCode {
	s.t.Helper()
	op, p, err := s.Read(s.t.Context())
	if err == nil {
		s.t.Fatalf("webtest: wait for the end: a message came, %v %q", op, p)
	}
	return websocket.CloseStatus(err)
}
