package client

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/h1"
)

// This file reads the body of a request, and encodes it. upload.go writes it.

// A payload is the body of a request.
type payload struct {
	body    io.ReadCloser // nil: none
	src     io.Reader     // body, or what is wrapped in it
	length  int64         // -1: unknown
	memory  bool          // src does not block
	chunked bool
	probe   bool          // whether there is a body shows when it is read
	expects bool          // 100 Continue
	closing sync.Once     // of body
	parker  driver.Parker // of the goroutine

	left    int64 // guarded by upload.mu: of a body with a length
	decided bool  // guarded by upload.mu: of a probe, the head is made
}

// noPayload is that of all requests without a body, most of them. It is not written to.
var noPayload = &payload{}

// newUpload finds out how the body is framed, as net/http does.
func newUpload(x *Call, pc *conn, st *stream) (*upload, error) {
	r := x.req
	u := &upload{x: x, pc: pc, st: st, payload: noPayload}
	if r.Body == nil || r.Body == http.NoBody {
		return u, nil
	}
	u.payload = &payload{body: r.Body, length: r.ContentLength}
	if u.src, u.memory = inMemory(r.Body); !u.memory {
		u.parker = x.t.sys.NewParker()
	}
	if u.length == 0 {
		u.length = -1
	}
	if len(r.TransferEncoding) > 0 && r.TransferEncoding[0] == "chunked" {
		u.length = -1
	}
	u.left = u.length
	if u.length < 0 && x.method() != "CONNECT" {
		u.chunked = true
		if usuallyLacksBody(x.method()) && len(r.TransferEncoding) == 0 {
			if l, ok := u.src.(interface{ Len() int }); u.memory && ok && l.Len() == 0 {
				u.chunked, u.body, u.length = false, nil, 0
				return u, r.Body.Close()
			}
			u.probe = !u.memory
		}
	}
	if u.chunked {
		for name := range r.Trailer {
			switch http.CanonicalHeaderKey(name) {
			case "Transfer-Encoding", "Trailer", "Content-Length":
				return u, fmt.Errorf("client: invalid Trailer key %q", name)
			}
		}
	}
	if st != nil {
		u.chunked = false // HTTP/2 frames bodies by itself
	}
	u.expects = x.t.ExpectContinueTimeout > 0 && !u.probe && expectsContinue(r)
	return u, nil
}

func usuallyLacksBody(method string) bool {
	switch method {
	case "GET", "HEAD", "DELETE", "OPTIONS", "PROPFIND", "SEARCH":
		return true
	}
	return false
}

func expectsContinue(r *http.Request) bool {
	for _, v := range r.Header["Expect"] {
		for member := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(member), "100-continue") {
				return true
			}
		}
	}
	return false
}

var (
	nopCloser         = reflect.TypeOf(io.NopCloser(nil))
	nopCloserWriterTo = reflect.TypeOf(io.NopCloser(struct {
		io.Reader
		io.WriterTo
	}{}))
)

// inMemory looks into what http.NewRequest makes of a body.
func inMemory(body io.ReadCloser) (src io.Reader, memory bool) {
	src = body
	if t := reflect.TypeOf(body); t == nopCloser || t == nopCloserWriterTo {
		src = reflect.ValueOf(body).Field(0).Interface().(io.Reader)
	}
	switch src.(type) {
	case *bytes.Reader, *bytes.Buffer, *strings.Reader:
		return src, true
	}
	return body, false
}

// fill reads and encodes up to n bytes, and what ends the body.
func (u *upload) fill(n int) {
	if cap(u.pending)-len(u.pending) < 64 { // most bodies are small
		u.pending = append(make([]byte, 0, len(u.pending)+min(n, u.guess())+64), u.pending...)
	}
	p := make([]byte, min(n, u.guess()))
	read := 0
	err := error(nil)
	for read < len(p) && err == nil {
		var k int
		k, err = u.src.Read(p[read:])
		read += k
	}
	u.encode(p[:read], err)
}

// guess is how many bytes of a body in memory may be left.
func (u *upload) guess() int {
	if l, ok := u.src.(interface{ Len() int }); ok {
		return l.Len() + 1 // a Read of more than there is shows the end
	}
	return uploadSlice
}

// encode appends body bytes, and its end if err is io.EOF.
func (u *upload) encode(p []byte, err error) {
	if u.chunked {
		u.pending = h1.AppendChunk(u.pending, p)
	} else {
		if u.length >= 0 && int64(len(p)) > u.left {
			u.failWith(fmt.Errorf("client: ContentLength=%d with a Body that is longer", u.length))
			return
		}
		u.left -= int64(len(p))
		u.pending = append(u.pending, p...)
	}
	switch {
	case err == nil:
		return
	case err != io.EOF:
		u.failWith(err)
		return
	case u.length >= 0 && u.left > 0:
		u.failWith(fmt.Errorf("client: ContentLength=%d with Body length %d", u.length, u.length-u.left))
		return
	}
	u.final = true
	if u.chunked {
		u.pending = append(u.pending, h1.LastChunk...)
		u.pending = appendFields(u.pending, u.x.req.Trailer, nil)
		u.pending = append(u.pending, "\r\n"...)
	}
}

func (u *upload) failWith(err error) { u.readErr.CompareAndSwap(nil, &err) }
