package web

import (
	"log"
	"net/http"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
)

// A lockedText is a log that tests read.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// What clients do wrong is in Server.ErrorLog, with their address: one line for each kind.
func TestHTTP2FaultsAreLogged(t *testing.T) {
	text := new(lockedText)
	f, _ := serveHTTP2(t, &Server{Handler: http.HandlerFunc(hello), ErrorLog: log.New(text, "", 0)})
	c, fr := rawHTTP2(t, f)
	block := append(append([]byte(nil), indexedGet...), "\x00\x07upgrade\x01x"...)
	for id := range uint32(5) {
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*id + 1, BlockFragment: block, EndHeaders: true,
			EndStream: true})
	}
	fr.WriteWindowUpdate(0, 1<<31-1)
	if code, _ := untilGoAway(t, fr); code != http2.ErrCodeFlowControl {
		t.Errorf("GOAWAY %v", code)
	}
	peer := c.LocalAddr().String()
	want := "http: HTTP/2 with " + peer +
		", stream 1: PROTOCOL_ERROR: a field belongs to a connection of HTTP/1: upgrade\n" +
		"http: HTTP/2 with " + peer + ": FLOW_CONTROL_ERROR: the connection's window is too large\n"
	within(t, "both are logged", func() bool { return strings.Count(text.String(), "\n") >= 2 })
	if got := text.String(); got != want {
		t.Errorf("logged\n%swant\n%s", got, want)
	}
}
