package accesslog

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"

	"github.com/myriad-go/myriad/examples/exampletest"
	"github.com/myriad-go/myriad/websocket"
)

// compressing are routers whose middleware compresses: chi's decides in WriteHeader and echo's when
// something is written.
var compressing = map[string]http.Handler{
	"chi": func() http.Handler {
		r := chi.NewRouter()
		r.Use(middleware.Compress(5, "text/event-stream"))
		r.Get("/ws", accept)
		r.Get("/stream", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			detach(w, r)
		})
		return r
	}(),
	"echo": func() http.Handler {
		e := echo.New()
		e.Use(echomiddleware.Gzip())
		e.GET("/ws", func(c echo.Context) error { accept(c.Response(), c.Request()); return nil })
		e.GET("/stream", func(c echo.Context) error { detach(c.Response(), c.Request()); return nil })
		return e
	}(),
}

// A browser says Accept-Encoding in the handshake too. Neither WebSockets nor streams pass through
// what compresses.
func TestBesideCompression(t *testing.T) {
	for name, h := range compressing {
		t.Run(name, func(t *testing.T) {
			addr := exampletest.Serve(t, h)
			opens(t, addr)
			r, err := exampletest.Client(t).Get("http://" + addr + "/stream")
			if got := exampletest.Body(t, r, err); got != "detached" || r.Header.Get("Content-Encoding") != "" {
				t.Errorf("the stream: %q with %v", got, r.Header)
			}
		})
		t.Run(name+" on net/http", func(t *testing.T) {
			s := httptest.NewServer(h)
			defer s.Close()
			opens(t, s.Listener.Addr().String())
		})
	}
}

// opens has a message echoed as a browser would.
func opens(t *testing.T, addr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), exampletest.Patience)
	defer cancel()
	c, r, err := websocket.Dial(ctx, "ws://"+addr+"/ws", &websocket.DialOptions{
		Header: http.Header{"Accept-Encoding": {"gzip, deflate"}}, Options: websocket.Options{Pull: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort(nil)
	if got := r.Header.Get("Content-Encoding"); got != "" {
		t.Errorf("the 101 has Content-Encoding %q", got)
	}
	if err := c.Write(websocket.OpText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, p, err := c.Read(ctx); err != nil || string(p) != "hello" {
		t.Errorf("read %q, %v", p, err)
	}
}
