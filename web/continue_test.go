package web

import (
	"bufio"
	"io"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/internal/httpscript"
)

// expecting are heads whose clients wait for 100 Continue before they send the body, "hello", in
// chunks or not.
var expecting = map[string]struct{ head, body string }{
	"length":   {post + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n", "hello"},
	"chunked":  {post + "Expect: 100-Continue\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"},
	"close":    {post + "Expect: 100-continue\r\nConnection: close\r\nContent-Length: 5\r\n\r\n", "hello"},
	"large":    {post + "Expect: 100-continue\r\nContent-Length: 1000000\r\n\r\n", strings.Repeat("hello", 200000)},
	"none":     {post + "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n", ""},
	"nolength": {post + "Expect: 100-continue\r\n\r\n", ""},
	"1.0": {"POST / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n" +
		"Content-Length: 5\r\n\r\nhello", ""},
}

// A patience is how a client goes on that expects 100 Continue.
type patience string

const (
	patient  patience = "patient"  // sends the body when it is told to; else its end
	stubborn patience = "stubborn" // sends it when any head has come
	gone     patience = "gone"     // sends its end at once
	hasty    patience = "hasty"    // sends the body with the head
)

// continued sends a head and what follows it, and returns what comes.
func continued(t *testing.T, f *fixture, head, body string, p patience) (lines []string) {
	c := dial(t, f)
	in := bufio.NewReader(c)
	if p == hasty {
		head += body + last
	}
	io.WriteString(c, head)
	if p == gone {
		closeWrite(c)
	}
	var got strings.Builder
	for line := ""; line != "\r\n"; {
		var err error
		if line, err = in.ReadString('\n'); err != nil {
			lines = append(lines, err.Error())
			break
		}
		got.WriteString(line)
	}
	if p != hasty && (strings.HasPrefix(got.String(), "HTTP/1.1 100 ") || p == stubborn) {
		io.WriteString(c, body+last)
	}
	closeWrite(c)
	rest, _ := io.ReadAll(in) // a reset may follow the end of an answer that says close
	got.Write(rest)
	all := httpscript.Headed(got.String())
	if p == gone { // behind such a body we say that the connection closes
		all = strings.ReplaceAll(all, "\r\nConnection: close", "")
	}
	if strings.HasPrefix(all, "HTTP/1.0") { // which knows no interim answers, and to which nothing says close
		all = strings.NewReplacer("HTTP/1.0 100 Continue\r\n\r\n", "", "HTTP/1.0 103 Early Hints\r\n\r\n", "",
			"\r\nConnection: close", "").Replace(all)
	}
	return append(lines, httpscript.Quote(all))
}

// A client that expects 100 Continue gets the same from net/http, whatever the handler does.
func TestExpectLikeNetHTTP(t *testing.T) { playLikeNetHTTP(t, "continue.txt") }
