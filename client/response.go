package client

import (
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/myriad-go/myriad/internal/h1"
)

// maxFields is how many fields a head may have.
const maxFields = 16_384

// newResponse is the response without its body.
func newResponse(req *http.Request, isHead bool, head *h1.ResponseHead) *http.Response {
	r := &http.Response{
		StatusCode: head.Status, Status: statusLine(head), ProtoMajor: 1, ProtoMinor: head.Minor,
		Proto: "HTTP/1." + string(rune('0'+head.Minor)), Header: headerOf(head.Fields),
		ContentLength: head.ContentLength, Close: !head.KeepAlive, Request: req,
	}
	if head.Minor == 1 {
		r.Proto = "HTTP/1.1"
	}
	if head.Chunked {
		r.TransferEncoding = []string{"chunked"}
		delete(r.Header, "Transfer-Encoding")
		announceTrailer(r)
	}
	if head.NoBody && !isHead {
		r.ContentLength = 0
	}
	if v := r.Header["Content-Length"]; len(v) > 1 {
		r.Header["Content-Length"] = v[:1] // the same again: one that differs was refused
	}
	if r.Close && head.Minor > 0 {
		delete(r.Header, "Connection") // it says "close", which is for this connection alone
	}
	if v := r.Header["Pragma"]; len(v) > 0 && v[0] == "no-cache" && r.Header["Cache-Control"] == nil {
		r.Header["Cache-Control"] = []string{"no-cache"} // RFC 9111 section 5.4, as net/http has it
	}
	return r
}

func statusLine(head *h1.ResponseHead) string {
	if head.Status == http.StatusOK && string(head.Reason) == "OK" {
		return "200 OK"
	}
	if head.Reason == nil {
		return strconv.Itoa(head.Status)
	}
	return strconv.Itoa(head.Status) + " " + string(head.Reason)
}

// announceTrailer moves the names of a Trailer field to Response.Trailer. It takes maxFields at
// most: a trailer has no more fields, and the map of a list of a megabyte takes thirteen.
func announceTrailer(r *http.Response) {
	for _, v := range r.Header["Trailer"] {
		for name := range strings.SplitSeq(v, ",") {
			if name = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)); name == "" {
				continue
			}
			if r.Trailer == nil {
				r.Trailer = http.Header{}
			}
			if len(r.Trailer) < maxFields {
				r.Trailer[name] = nil
			}
		}
	}
	delete(r.Header, "Trailer")
}

// headerOf copies fields. All values share two allocations.
func headerOf(fields []h1.Field) http.Header {
	h := make(http.Header, len(fields))
	size := 0
	for _, f := range fields {
		size += len(f.Value)
	}
	var text strings.Builder
	text.Grow(size)
	for _, f := range fields {
		text.Write(f.Value)
	}
	all, values := text.String(), make([]string, len(fields))
	for i, f := range fields {
		value := all[:len(f.Value)]
		all = all[len(f.Value):]
		name := h1.CanonicalName(f.Name)
		if before, there := h[name]; there {
			h[name] = append(before, value)
			continue
		}
		values[i] = value
		h[name] = values[i : i+1 : i+1]
	}
	return h
}
