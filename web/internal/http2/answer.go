package http2

import (
	"net/http"
	"os"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/flow"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// This file is how HTTP/2 frames an answer: heads and trailers as pairs of name and value, which
// the loop compresses when it sends them, and the body as it is.

// A encoder is what HTTP/2 knows of an answer.
type encoder struct {
	pairs []byte // from WriteHeader until the head is sent
	ended bool   // the end of the stream has been queued
}

var h2Fields = &exchange.FieldCoder{Field: appendPair, Length: appendPairLength}

// appendPair leaves out a field that must not be sent. Such a field is invalid, as in net/http with
// HTTP/2 (RFC 9113 section 8.2), or belongs to a connection of HTTP/1 (8.2.2) in any spelling.
func appendPair(p []byte, name, value string) []byte {
	lower, known := lowerNames[name]
	if !known {
		lower = strings.ToLower(name)
		if !httpguts.ValidHeaderFieldName(lower) || lower == "te" || h2.OfConnection(lower) {
			return p
		}
	}
	value = strings.Trim(value, " \t")
	if !httpguts.ValidHeaderFieldValue(value) {
		return p
	}
	return h2.AppendPair(p, lower, value, false)
}

func appendPairLength(p []byte, n int64) []byte {
	return h2.AppendPair(p, "content-length", strconv.FormatInt(n, 10), false)
}

// lowerNames are the names of usual fields of answers in lower case.
var lowerNames = func() map[string]string {
	names := map[string]string{}
	for _, name := range []string{"Accept-Ranges", "Access-Control-Allow-Origin", "Age", "Cache-Control",
		"Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length", "Content-Range",
		"Content-Security-Policy", "Content-Type", "Date", "Etag", "Expires", "Grpc-Message", "Grpc-Status",
		"Last-Modified", "Link", "Location", "Retry-After", "Server", "Set-Cookie", "Strict-Transport-Security",
		"Trailer", "Vary", "X-Content-Type-Options", "X-Frame-Options", "X-Request-Id"} {
		names[name] = strings.ToLower(name)
	}
	return names
}()

func appendStatus(p []byte, status int) []byte {
	var digits [3]byte
	return h2.AppendPair(p, ":status", string(strconv.AppendInt(digits[:0], int64(status), 10)), false)
}

// pairsRoom is for the head of a usual answer.
const pairsRoom = 192

// Snapshot implements exchange.Carrier.
func (x *Stream) Snapshot() {
	if x.enc.pairs == nil {
		x.enc.pairs = make([]byte, 0, pairsRoom)
	}
	x.enc.pairs = x.Out.AppendHeader(appendStatus(x.enc.pairs[:0], x.Out.Status), h2Fields)
}

// Interim implements exchange.Carrier. There is no 101 (RFC 9113 section 8.6).
func (x *Stream) Interim(status int) error {
	if status == http.StatusSwitchingProtocols {
		return nil
	}
	p := x.Out.AppendInterim(appendStatus(nil, status), h2Fields)
	return x.send(p, nil, false)
}

// Invite implements exchange.Carrier.
func (x *Stream) Invite() error {
	return x.put(appendStatus(nil, http.StatusContinue), nil, false)
}

// Coding implements exchange.Carrier: HTTP/2 has none.
func (x *Stream) Coding([]string) exchange.Coding { return exchange.CodingNone }

// OwnField implements exchange.Carrier. "Connection: close" has the connection end behind the
// streams that it has, as in net/http.
func (x *Stream) OwnField(name string, values []string) (skip bool) {
	if name == "Connection" && httpguts.HeaderValuesContainsToken(values, "close") {
		x.Demand(exchange.DemandGoAway)
	}
	return true
}

// SendHead implements exchange.Carrier.
func (x *Stream) SendHead(next []byte, last bool) error {
	w, e := &x.Out, &x.enc
	first := w.Gathered()
	p := w.AppendDecided(e.pairs, h2Fields, first, next)
	if e.pairs = nil; w.NoBody {
		e.ended = true
		return x.send(p, nil, true)
	}
	if !last {
		return x.send(p, first, false)
	}
	return x.sendLast(p, first)
}

// SendData implements exchange.Carrier.
func (x *Stream) SendData(p []byte, last bool) error {
	switch {
	case x.enc.ended:
		return x.Out.Alive()
	case last:
		return x.sendLast(nil, p)
	}
	return x.send(nil, p, false)
}

// sendLast sends the end of the answer with what comes before it. The trailers need no room. An
// answer that is too short has no end: the stream is reset.
func (x *Stream) sendLast(head, p []byte) error {
	x.enc.ended = true
	if x.Out.IsShort() {
		return x.send(head, p, false)
	}
	tail := x.Out.AppendTrailer(nil, h2Fields)
	if len(tail) == 0 {
		return x.send(head, p, true)
	}
	if head != nil || len(p) > 0 {
		if err := x.send(head, p, false); err != nil {
			return err
		}
	}
	return x.s.End(tail)
}

// send queues a head and data, waiting for room where the handler may wait.
func (x *Stream) send(head, p []byte, last bool) error {
	return x.Out.SendWhenRoom(func() error { return x.put(head, p, last) })
}

// put queues them, all or nothing: myriad.ErrFull.
func (x *Stream) put(head, p []byte, last bool) error {
	err := x.s.Put(head, p, last)
	if err == flow.ErrFull {
		return myriad.ErrFull
	}
	return err
}

// CanSendFile implements exchange.Carrier: a file is read into frames.
func (x *Stream) CanSendFile() bool { return false }

// SendFile implements exchange.Carrier.
func (x *Stream) SendFile(*os.File, int64, int64) error { return myriad.ErrUnsupported }

// Refuse implements exchange.Carrier.
func (x *Stream) Refuse(status int, reason string) error {
	r := x.Refusal(status, reason)
	p := appendPair(appendStatus(nil, r.Status), "Date", x.h.Date())
	p = appendPair(p, "Content-Type", r.Type)
	if r.RetryAfter != "" {
		p = appendPair(p, "Retry-After", r.RetryAfter)
	}
	if r.NoStore {
		p = appendPair(p, "Cache-Control", "no-store")
	}
	x.enc.ended = true
	p = appendPairLength(p, int64(len(r.Body)))
	body := []byte(r.Body)
	if x.Given.Request.Method == http.MethodHead {
		body = nil
	}
	defer x.s.Release()
	return x.put(p, body, true)
}
