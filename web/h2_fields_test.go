package web

import (
	"io"
	"net/http"
	"testing"
)

// No field of a connection of HTTP/1 leaves in an interim head, in the final one, or in trailers
// (RFC 9113 section 8.2.2). The handler's spelling makes no difference.
func TestHTTP2FieldsOfAConnection(t *testing.T) {
	names := []string{"Connection", "connection", "Keep-Alive", "KEEP-ALIVE", "Proxy-Connection", "Transfer-Encoding",
		"transfer-encoding", "Upgrade", "upgrade", "Te", "te"}
	f, _ := serveHTTP2(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for _, name := range names {
			h[name] = []string{"trailers"}
			h[http.TrailerPrefix+name] = []string{"trailers"}
		}
		h["X-Own"] = []string{"yes"}
		h[http.TrailerPrefix+"X-Own"] = []string{"yes"}
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "body")
		w.(http.Flusher).Flush()
	})})
	p := newPeer(t, f.addr)
	defer p.Close()
	got := p.ask(&message{head: []string{":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/"}})
	want := `200 ["103 X-Own=[\"yes\"]"] fields Content-Type=["text/plain; charset=utf-8"] Date=["some"] ` +
		`X-Own=["yes"] body 4 "body" trailer X-Own=["yes"] `
	if got.String() != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
