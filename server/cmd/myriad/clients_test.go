package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
)

// connect sends bytes to the server at the url.
func connect(t *testing.T, url, bytes string) (net.Conn, *bufio.Reader) {
	t.Helper()
	nc, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(60 * time.Second))
	if _, err := io.WriteString(nc, bytes); err != nil {
		t.Fatal(err)
	}
	return nc, bufio.NewReader(nc)
}

// until reads lines up to one that contains part.
func until(t *testing.T, r *bufio.Reader, part string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if strings.Contains(line, part) {
			return
		}
		if err != nil {
			t.Fatalf("no %q: %q, %v", part, line, err)
		}
	}
}

const (
	getEvents = "GET /events?channel=news HTTP/1.1\r\nHost: localhost\r\n\r\n"
	halfBody  = "POST /api/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40\r\n\r\n{\"ch"

	// The server sends "100 Continue" when its handler waits for the body, which never comes.
	noBody = "POST /api/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40\r\nExpect: 100-continue\r\n\r\n"

	// Two frames follow the request, masked with zeros.
	webSocket = "GET /connection/websocket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n" +
		"Connection: Upgrade\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" +
		"\x81\x95\x00\x00\x00\x00{\"id\":1,\"connect\":{}}" +
		"\x81\xa7\x00\x00\x00\x00{\"id\":2,\"subscribe\":{\"channel\":\"news\"}}"
)

// receive reads bytes until they end with part, because frames are not lines.
func receive(t *testing.T, r *bufio.Reader, part string) {
	t.Helper()
	var got strings.Builder
	for !strings.HasSuffix(got.String(), part) {
		b, err := r.ReadByte()
		if err != nil {
			t.Fatalf("no %q in %q: %v", part, got.String(), err)
		}
		got.WriteByte(b)
	}
}

// The server closes the connection of a client that sends half a request or does not read the
// answer. It keeps WebSocket and SSE clients connected for any time.
func TestServeEndsRequestsInTime(t *testing.T) {
	t.Parallel()
	const short = 2 * time.Second
	url, _, _ := startWith(t, settings{readTimeout: short, writeTimeout: short,
		shutdownTimeout: 100 * time.Millisecond})
	_, events := connect(t, url, getEvents)
	until(t, events, "retry:")
	publisher, socket := connect(t, url, webSocket)
	receive(t, socket, `"subscribe":{}}`)

	var halves []*bufio.Reader
	for range 20 {
		_, r := connect(t, url, halfBody)
		halves = append(halves, r)
	}
	for _, r := range halves {
		answer, err := io.ReadAll(r)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the server waits for the rest of a body without a time limit")
		}
		if len(answer) > 0 && !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
			t.Errorf("the answer to half a body is %q", answer)
		}
	}
	nc, _ := connect(t, url, "")
	var err error
	for err == nil {
		_, err = io.WriteString(nc, strings.Repeat("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 100))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the server waits for a client that reads nothing without a time limit")
	}

	io.WriteString(publisher,
		"\x81\xbd\x00\x00\x00\x00"+`{"id":3,"publish":{"channel":"news","data":{"still":"here"}}}`)
	until(t, events, `data: {"still":"here"}`)
	receive(t, socket, `{"id":3,"publish":{}}`)
}

// Clients that do not disconnect delay the shutdown for at most --shutdown-timeout, and are no
// error.
func TestServeCutsOffAtTheEnd(t *testing.T) {
	const clients = 5
	url, log, stop := startWith(t, settings{
		readTimeout: time.Hour, writeTimeout: time.Hour, shutdownTimeout: 200 * time.Millisecond,
		push: push.Config{Timing: push.Timing{Close: time.Hour}},
	})
	for range clients - 1 {
		_, r := connect(t, url, noBody)
		until(t, r, "100 Continue")
	}
	_, socket := connect(t, url, webSocket) // the client never answers the close
	receive(t, socket, `"subscribe":{}}`)
	if err := stop(); err != nil {
		t.Errorf("serve ended with %v", err)
	}
	if want := fmt.Sprintf("connections=%d", clients); strings.Count(log.String(), want) != 1 {
		t.Errorf("the log does not say %s once:\n%s", want, log)
	}
	behind := log.String()[strings.Index(log.String(), "shutting down"):]
	if strings.Count(behind, "level=WARN") != 1 || strings.Contains(behind, "level=ERROR") ||
		strings.Contains(behind, "deadline") {
		t.Errorf("the log has unexpected lines:\n%s", behind)
	}
}

// For --drain-delay the server waits before it shuts down, and says so by /health alone. The wait
// ends when serving fails.
func TestServeWaitsForBalancers(t *testing.T) {
	t.Parallel()
	_, log, stop := startWith(t, settings{drainDelay: 10 * time.Millisecond, shutdownTimeout: 10 * time.Second})
	if err := stop(); err != nil {
		t.Errorf("serve ended with %v", err)
	}
	text := log.String()
	if wait, end := strings.Index(text, "/health answers 503"), strings.Index(text, "shutting down"); wait < 0 ||
		end < wait {
		t.Errorf("the server did not wait before it shut down:\n%s", text)
	}

	server, err := push.New(push.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown(t.Context())
	r := &running{settings: settings{drainDelay: time.Hour, log: slog.New(slog.DiscardHandler)}, pusher: server}
	failed, broken := make(chan error, 1), errors.New("the listener is broken")
	failed <- broken
	if err := r.awaitBalancers(failed); err != broken {
		t.Errorf("the wait ended with %v", err)
	}
	w := httptest.NewRecorder()
	server.ServeHTTP(w, httptest.NewRequest("GET", "/health", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("/health answered %d during the wait", w.Code)
	}
}

// Idle clients are disconnected at once, and not logged.
func TestServeEndsQuietly(t *testing.T) {
	t.Parallel()
	url, log, stop := start(t)
	nc, r := connect(t, url, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
	until(t, r, "HTTP/1.1 200")
	_, events := connect(t, url, getEvents)
	until(t, events, "retry:")
	defer nc.Close()
	if err := stop(); err != nil {
		t.Errorf("serve ended with %v", err)
	}
	if behind := log.String()[strings.Index(log.String(), "shutting down"):]; strings.Contains(behind, "level=WARN") ||
		strings.Contains(behind, "level=ERROR") {
		t.Errorf("the log has unexpected lines:\n%s", behind)
	}
}
