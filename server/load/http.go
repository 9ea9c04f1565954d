package load

import (
	"bytes"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/myriad-go/myriad/internal/h1"
)

// httpRequest is the request of a plan, as bytes.
func httpRequest(p Plan, u *url.URL) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", p.Method, u.RequestURI())
	if !hasHeader(p.Header, "Host") {
		fmt.Fprintf(&b, "Host: %s\r\n", u.Host)
	}
	for _, line := range p.Header {
		name, value, _ := strings.Cut(line, ":")
		fmt.Fprintf(&b, "%s: %s\r\n", name, strings.TrimSpace(value))
	}
	if p.Body != "" || p.Method == "POST" || p.Method == "PUT" || p.Method == "PATCH" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(p.Body))
	}
	b.WriteString("\r\n")
	b.WriteString(p.Body)
	return b.Bytes()
}

func hasHeader(lines []string, name string) bool {
	for _, line := range lines {
		if have, _, _ := strings.Cut(line, ":"); strings.EqualFold(have, name) {
			return true
		}
	}
	return false
}

// An httpTalk sends the same request again and again.
type httpTalk struct {
	all      []byte // the request, Plan.Pipeline times
	response httpResponse
}

func newHTTPTalk(request []byte, pipeline int, head bool) *httpTalk {
	return &httpTalk{all: bytes.Repeat(request, pipeline), response: httpResponse{toHead: head}}
}

func (t *httpTalk) request(time.Time) []byte { return t.all }

func (t *httpTalk) closing() bool { return t.response.last }

func (t *httpTalk) replies(p []byte) (done, refused int64, reason string, err error) {
	for len(p) > 0 {
		n, status, err := t.response.take(p)
		if err != nil {
			return done, refused, reason, err
		}
		if p = p[n:]; status == 0 {
			continue
		}
		done++
		if status < 200 || status > 399 {
			refused++
			reason = "status " + strconv.Itoa(status)
		}
	}
	return done, refused, reason, nil
}

func (t *httpTalk) ends() (int64, error) { return t.response.ends() }

// An httpResponse finds the ends of responses in a stream of bytes. Its heads have the limits of
// h1.Limits; bodies are not kept.
type httpResponse struct {
	toHead bool // of responses to HEAD, which have no body

	tail   []byte // of an incomplete head or trailer
	scan   h1.Scan
	head   h1.ResponseHead
	known  []byte // the head before, with what it said: servers repeat themselves
	body   bodyState
	left   int64
	chunks h1.Chunked
	status int
	last   bool // the server closes the connection after this response
	onData func(p []byte)
	onHead func(status int) // a final response begins
}

type bodyState uint8

const (
	inHead bodyState = iota
	inLength
	inChunks
	inTrailer
	untilEnd
)

// take consumes n bytes of p. status is that of a response that they complete, or 0.
func (r *httpResponse) take(p []byte) (n, status int, err error) {
	switch r.body {
	case inHead:
		return r.takeHead(p)
	case inLength:
		n := int(min(r.left, int64(len(p))))
		r.data(p[:n])
		if r.left -= int64(n); r.left == 0 {
			return n, r.finish(), nil
		}
		return n, 0, nil
	case inChunks:
		n, data, done, err := r.chunks.Decode(p)
		r.data(data)
		if done {
			r.body = inTrailer
		}
		return n, 0, err
	case inTrailer:
		return r.takeTrailer(p)
	}
	r.data(p)
	return len(p), 0, nil
}

func (r *httpResponse) data(p []byte) {
	if r.onData != nil && len(p) > 0 {
		r.onData(p)
	}
}

// ends is told that the server has ended its side, which completes a body without a length.
func (r *httpResponse) ends() (done int64, err error) {
	switch {
	case r.body == untilEnd:
		r.last = true
		r.finish()
		return 1, nil
	case r.body == inHead && len(r.tail) == 0:
		return 0, nil
	}
	return 0, io.ErrUnexpectedEOF
}

func (r *httpResponse) takeHead(p []byte) (n, status int, err error) {
	if len(r.tail) == 0 && len(r.known) > 0 && bytes.HasPrefix(p, r.known) {
		return len(r.known), r.begin(), nil
	}
	whole, before := p, len(r.tail)
	if before > 0 {
		r.tail = append(r.tail, p...)
		whole = r.tail
		if ready, err := r.scan.Response(whole, h1.Limits{}); err != nil || !ready {
			return len(p), 0, malformed(err)
		}
	}
	n, err = h1.ParseResponse(whole, h1.Limits{}, &r.head)
	if err != nil {
		return 0, 0, malformed(err)
	}
	if n == 0 {
		r.tail, r.scan = append(r.tail, p...), h1.Scan{}
		return len(p), 0, nil
	}
	n -= before // the rest of the tail is among p
	r.known = append(r.known[:0], whole[:n+before]...)
	r.tail = nil
	return n, r.begin(), nil
}

// begin starts the body that the head has announced.
func (r *httpResponse) begin() (status int) {
	h := r.head
	r.status = h.Status
	if h.Status < 200 && h.Status != 101 {
		return 0 // an interim response
	}
	r.last = !h.KeepAlive
	if r.onHead != nil {
		r.onHead(h.Status)
	}
	switch {
	case h.NoBody || r.toHead || !h.Chunked && h.ContentLength == 0:
		return r.finish()
	case h.Chunked:
		r.body, r.chunks = inChunks, h1.Chunked{}
	case h.ContentLength > 0:
		r.body, r.left = inLength, h.ContentLength
	default:
		r.body = untilEnd
	}
	return 0
}

func (r *httpResponse) takeTrailer(p []byte) (n, status int, err error) {
	before := len(r.tail)
	r.tail = append(r.tail, p...)
	n, _, err = h1.ParseTrailer(r.tail, h1.Limits{}, nil)
	if err != nil {
		return 0, 0, malformed(err)
	}
	if n == 0 {
		return len(p), 0, nil
	}
	r.tail = nil
	return n - before, r.finish(), nil
}

func malformed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("malformed response: %w", err)
}

func (r *httpResponse) finish() int {
	r.body = inHead
	return r.status
}
