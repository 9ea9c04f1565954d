package web

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/myriad-go/myriad/internal/h1"
)

// This file is what a conn answers by itself.

// refuseHead answers what is not a request.
func (h *conn) refuseHead(err error) {
	var e *h1.Error
	if errors.As(err, &e) {
		h.refuse(e.Status, e.Reason)
		return
	}
	h.refuse(http.StatusBadRequest, err.Error())
}

// refuse answers what may be no request from the loop and closes; the close waits for the client to read it.
func (h *conn) refuse(status int, reason string) { h.refuseTo(nil, status, reason) }

// refuseTo is refuse of a request with this method.
func (h *conn) refuseTo(method []byte, status int, reason string) {
	h.answerAndClose(appendError(nil, method, status, reason, h.date()))
}

// refuseExpectation answers a request whose client expects what nobody knows.
func (h *conn) refuseExpectation(head *h1.Head) {
	h.answerAndClose(appendExpectationFailed(nil, head, h.date()))
}

func (h *conn) date() string { return h.lane.st.clock.at(h.lane.loop.Now()).text }

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

// appendError is a whole answer in the words of net/http. To HEAD it has no body (RFC 9110 section 9.3.2).
func appendError[T []byte | string](dst []byte, method T, status int, reason, date string) []byte {
	body := strconv.Itoa(status) + " " + http.StatusText(status)
	if reason != "" {
		body += ": " + reason
	}
	dst = h1.AppendStatusLine(dst, 1, status)
	if status == http.StatusNotImplemented {
		return append(append(dst, "Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"...), reason...) // to the byte
	}
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
