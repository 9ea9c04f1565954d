// Package accesslog has only tests. The access logs of gin, chi and echo show the status of
// WebSockets and detached streams, on web.Server and on http.Server. No server logs an error for
// them.
package accesslog

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"

	"github.com/myriad-go/myriad/examples/exampletest"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
)

// A text is what several goroutines log.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *text) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *text) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// socket is what /ws of each framework speaks.
var socket = &websocket.Options{OnMessage: func(c *websocket.Conn, op websocket.Op, p []byte) { _ = c.Write(op, p) }}

func accept(w http.ResponseWriter, r *http.Request) {
	if _, err := websocket.Accept(w, r, socket); err != nil {
		log.Panic(err)
	}
}

// detach answers with a stream, on a server that has them.
func detach(w http.ResponseWriter, _ *http.Request) {
	stream, err := web.Detached(w)
	if err != nil {
		log.Panic(err)
	}
	_, _ = stream.Write([]byte("detached"))
	_ = stream.Close()
}

// withGin, withChi and withEcho serve /ws by accept, and /stream by detach, which answers 202. They
// write their access logs to out, with the status as the first word of each line.
func withGin(out io.Writer) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	g := gin.New()
	g.Use(gin.LoggerWithConfig(gin.LoggerConfig{Output: out, Formatter: func(p gin.LogFormatterParams) string {
		return http.StatusText(p.StatusCode) + "\n"
	}}), gin.Recovery())
	g.GET("/ws", func(c *gin.Context) { accept(c.Writer, c.Request) })
	g.GET("/stream", func(c *gin.Context) {
		c.Status(http.StatusAccepted)
		detach(c.Writer, c.Request)
	})
	return g
}

func withChi(out io.Writer) http.Handler {
	r := chi.NewRouter()
	r.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
			next.ServeHTTP(ww, r)
			_, _ = io.WriteString(out, http.StatusText(ww.Status())+"\n")
		})
	})
	r.Get("/ws", accept)
	r.Get("/stream", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		detach(w, r)
	})
	return r
}

func withEcho(out io.Writer) http.Handler {
	e := echo.New()
	e.Use(echomiddleware.RequestLoggerWithConfig(echomiddleware.RequestLoggerConfig{LogStatus: true,
		LogValuesFunc: func(_ echo.Context, v echomiddleware.RequestLoggerValues) error {
			_, err := io.WriteString(out, http.StatusText(v.Status)+"\n")
			return err
		}}))
	e.GET("/ws", func(c echo.Context) error { accept(c.Response(), c.Request()); return nil })
	e.GET("/stream", func(c echo.Context) error {
		c.Response().WriteHeader(http.StatusAccepted)
		detach(c.Response(), c.Request())
		return nil
	})
	return e
}

var frameworks = map[string]func(io.Writer) http.Handler{"gin": withGin, "chi": withChi, "echo": withEcho}

// A counted handler can be waited for. Shutdown does not wait for handlers whose connection was
// taken over.
type counted struct {
	http.Handler
	running sync.WaitGroup
}

func (c *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.running.Add(1)
	defer c.running.Done()
	c.Handler.ServeHTTP(w, r)
}

func TestAccessLogsOfWebServer(t *testing.T) {
	for name, framework := range frameworks {
		t.Run(name, func(t *testing.T) {
			access, errors := &text{}, &text{}
			h := &counted{Handler: framework(access)}
			s := &web.Server{Handler: h, ErrorLog: log.New(errors, "", 0)}
			ln, err := s.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			echoes(t, ln.Addr().String())
			h.running.Wait()
			r, err := exampletest.Client(t).Get("http://" + ln.Addr().String() + "/stream")
			if got := exampletest.Body(t, r, err); r.StatusCode != http.StatusAccepted || got != "detached" {
				t.Errorf("the stream: %s %q", r.Status, got)
			}
			shutdown(t, s)
			checkLogs(t, access, errors, "Switching Protocols\nAccepted\n")
		})
	}
}

func TestAccessLogsOfHTTPServer(t *testing.T) {
	for name, framework := range frameworks {
		t.Run(name, func(t *testing.T) {
			access, errors := &text{}, &text{}
			h := &counted{Handler: framework(access)}
			s := &http.Server{Handler: h, ErrorLog: log.New(errors, "", 0)}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- s.Serve(ln) }()
			echoes(t, ln.Addr().String())
			shutdown(t, s)
			if err := <-ended; err != http.ErrServerClosed {
				t.Error(err)
			}
			h.running.Wait()
			checkLogs(t, access, errors, "Switching Protocols\n")
		})
	}
}

func shutdown(t *testing.T, s interface{ Shutdown(context.Context) error }) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), exampletest.Patience)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

func checkLogs(t *testing.T, access, errors *text, want string) {
	t.Helper()
	if got := access.String(); got != want {
		t.Errorf("the access log has the statuses %q, want %q", got, want)
	}
	if got := strings.TrimSpace(errors.String()); got != "" {
		t.Errorf("the server logged %q", got)
	}
}

// echoes opens a WebSocket, has a message echoed and closes it.
func echoes(t *testing.T, addr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), exampletest.Patience)
	defer cancel()
	got := make(chan string, 1)
	c, _, err := websocket.Dial(ctx, "ws://"+addr+"/ws", &websocket.DialOptions{Options: websocket.Options{
		OnMessage: func(_ *websocket.Conn, _ websocket.Op, p []byte) { got <- string(p) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Write(websocket.OpText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	select {
	case s := <-got:
		if s != "hello" {
			t.Errorf("echoed %q", s)
		}
	case <-ctx.Done():
		t.Error("nothing was echoed")
	}
	c.Abort(nil)
}
