package websocket

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/myriad-go/myriad/internal/h1"
)

// maxResponse bounds the heads of a response, those of interim ones included, in bytes.
const maxResponse = 16 << 10

// A responseReader gathers the response that ends a handshake with a server. Interim
// responses (1xx, but 101) are skipped (RFC 9110 section 15.2).
type responseReader struct {
	got     []byte // of the response that is not complete yet
	scan    h1.Scan
	skipped int // bytes of interim responses
	head    h1.ResponseHead
}

var errLongResponse = fmt.Errorf("the head of the response is above %d bytes", maxResponse)

// add takes in p. It returns nil and no error until the head of the response is complete. rest are
// the bytes behind it, which the reader does not use again.
func (r *responseReader) add(p []byte) (response *http.Response, rest []byte, err error) {
	r.got = append(r.got, p...)
	for r.skipped < maxResponse {
		limits := h1.Limits{HeadBytes: maxResponse - r.skipped, LineBytes: maxResponse}
		ready, err := r.scan.Response(r.got, limits)
		if err != nil {
			return nil, nil, wordsOf(err)
		}
		if !ready {
			return nil, nil, nil
		}
		n, err := h1.ParseResponse(r.got, limits, &r.head)
		if err != nil {
			return nil, nil, wordsOf(err)
		}
		if s := r.head.Status; s >= 200 || s == http.StatusSwitchingProtocols {
			return responseOf(&r.head), r.got[n:], nil
		}
		r.got, r.scan, r.skipped = r.got[n:], h1.Scan{}, r.skipped+n
	}
	return nil, nil, errLongResponse
}

// wordsOf says why the bytes are no response, of which the caller knows the sender.
func wordsOf(err error) error {
	var bad *h1.Error
	if errors.As(err, &bad) && bad.Status != http.StatusBadRequest && bad.Status != http.StatusHTTPVersionNotSupported {
		return errLongResponse
	}
	return fmt.Errorf("it is not a response of HTTP/1.1: %w", err)
}

// responseOf makes what package net/http has of a head. The body is empty.
func responseOf(head *h1.ResponseHead) *http.Response {
	status := strconv.Itoa(head.Status)
	r := &http.Response{
		Status: status + " " + string(head.Reason), StatusCode: head.Status,
		Proto: "HTTP/" + strconv.Itoa(head.Major) + "." + strconv.Itoa(head.Minor), ProtoMajor: head.Major,
		ProtoMinor: head.Minor,
		Header:     make(http.Header, len(head.Fields)), Body: http.NoBody, ContentLength: head.ContentLength,
		Close: !head.KeepAlive,
	}
	if head.Chunked {
		r.TransferEncoding = []string{"chunked"}
	}
	for _, f := range head.Fields {
		if !f.Is("transfer-encoding") {
			name := h1.CanonicalName(f.Name)
			r.Header[name] = append(r.Header[name], string(f.Value))
		}
	}
	return r
}

// maxRefusalBody is how much of the body of a response that is not a 101 is kept.
const maxRefusalBody = 1 << 10

// A refusalBody is the beginning of the body of a response that refuses the upgrade.
type refusalBody struct {
	bytes   bytes.Buffer
	want    int // bytes to wait for
	chunked bool
	chunks  h1.Chunked
}

// newRefusalBody is for the body of a response with this head.
func newRefusalBody(head *h1.ResponseHead) *refusalBody {
	b := &refusalBody{want: maxRefusalBody, chunked: head.Chunked}
	switch {
	case head.NoBody:
		b.want = 0
	case head.ContentLength >= 0:
		b.want = int(min(head.ContentLength, maxRefusalBody))
	}
	return b
}

// add takes in bytes behind the head, and reports whether no more are needed.
func (b *refusalBody) add(p []byte) (whole bool) {
	if !b.chunked {
		b.keep(p)
		return b.bytes.Len() >= b.want
	}
	for len(p) > 0 && b.bytes.Len() < b.want {
		n, data, done, err := b.chunks.Decode(p)
		b.keep(data)
		if p = p[n:]; done || err != nil {
			return true
		}
	}
	return b.bytes.Len() >= b.want
}

func (b *refusalBody) keep(p []byte) { b.bytes.Write(p[:min(len(p), b.want-b.bytes.Len())]) }
