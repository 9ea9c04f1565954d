package web

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

const (
	get      = "GET / HTTP/1.1\r\nHost: h\r\n"
	post     = "POST / HTTP/1.1\r\nHost: h\r\n"
	chunked  = post + "Transfer-Encoding: chunked\r\n\r\n"
	smuggled = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
)

// The row that takes time: a head, begun or hardly begun, that does not come to its end. A
// connection that has said nothing is closed without a word.
func TestRequestTimeout(t *testing.T) {
	for _, c := range []struct{ request, status string }{
		{"G", "408"}, {"GET / HTTP/1.1\r\n", "408"}, {get + "A: b\r\n", "408"}, {"", ""}, {get + "\r\n" + get, "200"},
		{"\r\n", ""},
	} {
		t.Run(fmt.Sprintf("%q", c.request), func(t *testing.T) {
			t.Parallel()
			f := serve(t, &Server{ReadHeaderTimeout: 50 * time.Millisecond,
				Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
			ask := inTime
			if c.status == "" {
				ask = func(t *testing.T, f *fixture, request string) string { return raw(t, f, request, false) }
			}
			answer := ask(t, f, c.request)
			if got := statusOf(answer); got != c.status {
				t.Errorf("got %q, want %s", answer, c.status)
			}
			if strings.Contains(answer, " 408 ") && !strings.Contains(answer, "Connection: close\r\n") {
				t.Errorf("got %q: no close", answer)
			}
		})
	}
}

// statusOf is the status of the first answer.
func statusOf(answer string) string {
	if fields := strings.Fields(answer); len(fields) > 1 {
		return fields[1]
	}
	return ""
}
