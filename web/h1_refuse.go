package web

import (
	"bytes"
	"errors"
	"net/http"
	"time"

	"github.com/myriad-go/myriad/internal/h1"
)

// This file is what a conn answers by itself.

// refuseHead answers head, the bytes of what is no request, and closes.
func (h *conn) refuseHead(head []byte, err error) {
	status, reason := http.StatusBadRequest, err.Error()
	if e, ok := errors.AsType[*h1.Error](err); ok {
		status, reason = e.Status, e.Reason
	}
	if err == h1.ErrTLS {
		h.reportTLS(reason)
	}
	h.refuse(methodOf(head), status, reason)
}

// misledPeriod is how often the log is told at most of TLS clients that have come to a port without
// TLS.
const misledPeriod = 10 * time.Second

// reportTLS has the log tell of a TLS client, in the words of a failed handshake. Of the answer
// most such clients show nothing; that of net/http recognises its beginning.
func (h *conn) reportTLS(reason string) {
	if times, due := h.lane.st.misled.Next(h.lane.loop.Now(), misledPeriod); due {
		h.lane.s.logHandshake(h.c.RemoteAddr(), reason, times)
	}
}

// refuseUnfinished answers a head of which no more is awaited, and closes.
func (h *conn) refuseUnfinished(status int, reason string) {
	h.refuse(methodOf(h.kept()), status, reason)
}

// methodOf is the method that a head begins with, of which the rest may be missing or wrong.
func methodOf(head []byte) []byte {
	method, _, found := bytes.Cut(head[h1.EmptyLines(head):], []byte(" "))
	if !found {
		return nil
	}
	return method
}

// refuse answers from the loop and closes; the close waits for the client to read the answer.
func (h *conn) refuse(method []byte, status int, reason string) {
	h.answerAndClose(appendError(nil, method, status, reason, h.date()))
}

// refuseExpectation answers a request with an unknown expectation.
func (h *conn) refuseExpectation(head *h1.Head) {
	h.answerAndClose(appendExpectationFailed(nil, head, h.date()))
}

func (h *conn) answerAndClose(answer []byte) {
	h.setState(http.StateActive)
	_, _ = h.c.Write(answer) // a conn that takes no more needs no answer
	h.close()
}

// appendExpectationFailed is the whole answer, to the byte that of net/http.
func appendExpectationFailed(dst []byte, head *h1.Head, date string) []byte {
	dst = h1.AppendStatusLine(dst, min(head.Minor, 1), http.StatusExpectationFailed)
	dst = h1.AppendField(dst, "Connection", "close")
	dst = h1.AppendField(dst, "Date", date)
	if string(head.Method) != http.MethodHead {
		dst = h1.AppendLength(dst, 0)
	}
	return append(dst, "\r\n"...)
}

// appendError is a whole answer in the words of net/http. To HEAD it has no body (RFC 9110 section
// 9.3.2).
func appendError[T []byte | string](dst []byte, method T, status int, reason, date string) []byte {
	body := errorText(status, reason)
	dst = h1.AppendStatusLine(dst, 1, status)
	dst = h1.AppendField(dst, "Date", date)
	dst = h1.AppendField(dst, "Content-Type", "text/plain; charset=utf-8")
	if status == http.StatusServiceUnavailable {
		dst = h1.AppendField(dst, "Retry-After", "1")
	}
	dst = h1.AppendLength(dst, int64(len(body)))
	dst = h1.AppendField(dst, "Connection", "close")
	dst = append(dst, "\r\n"...)
	if string(method) == http.MethodHead {
		return dst
	}
	return append(dst, body...)
}
