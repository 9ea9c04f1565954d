package push

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// WriteJSON answers with body, which is JSON.
func WriteJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) // a write error means that the client has disconnected
}

// WriteError answers with the status and the body {"error":{"code":…,"message":…}}.
func WriteError(w http.ResponseWriter, status int, code uint32, message string) {
	WriteJSON(w, status, AppendError(nil, code, message))
}

// AppendError appends the body of WriteError.
func AppendError(dst []byte, code uint32, message string) []byte {
	return append(AppendBareError(append(dst, `{"error":`...), code, message), '}')
}

// AppendBareError appends {"code":…,"message":…}, the inner part of AppendError.
func AppendBareError(dst []byte, code uint32, message string) []byte {
	dst = fmt.Appendf(dst, `{"code":%d,"message":`, code)
	return append(centrifuge.AppendString(dst, message), '}')
}

// WriteTooLarge answers 413 to a request whose body has more than limit bytes.
func WriteTooLarge(w http.ResponseWriter, limit int) {
	WriteError(w, http.StatusRequestEntityTooLarge, ErrLimitExceeded.Code,
		fmt.Sprintf("the body is larger than %d bytes",
			limit))
}

// AllowMethod answers 405 to every other method.
func AllowMethod(w http.ResponseWriter, r *http.Request, methods ...string) bool {
	for _, m := range methods {
		if r.Method == m {
			return true
		}
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	WriteError(w, http.StatusMethodNotAllowed, ErrMethodNotFound.Code, "use "+strings.Join(methods, " or "))
	return false
}

// CheckQuery returns an error for the first parameter that is not among the known ones.
func CheckQuery(query url.Values, known ...string) error {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("the parameter %q is not served: the parameters are %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// plainBodies answers 415 to a body with a content coding, which no door decodes (RFC 9110
// §15.5.16). Messages of gRPC have a compression of their own.
func plainBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		coding := strings.Join(r.Header.Values("Content-Encoding"), ", ")
		if coding != "" && !strings.EqualFold(coding, "identity") {
			w.Header().Set("Accept-Encoding", "identity")
			WriteError(w, http.StatusUnsupportedMediaType, ErrBadRequest.Code,
				fmt.Sprintf("the content encoding %q is not "+
					"served: send the body as it is", coding))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// HasETag reports whether If-None-Match names the entity tag, which is given without quotes. Tags
// are compared weakly (RFC 9110 §13.1.2): a proxy that compresses makes a weak one of it.
func HasETag(r *http.Request, tag string) bool {
	for _, line := range r.Header.Values("If-None-Match") {
		for one := range strings.SplitSeq(line, ",") {
			one = strings.TrimPrefix(strings.TrimSpace(one), "W/")
			if one == "*" || one == tag || one == `"`+tag+`"` {
				return true
			}
		}
	}
	return false
}

// RefuseBody answers a request whose body could not be read.
func RefuseBody(w http.ResponseWriter, err error) {
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		WriteTooLarge(w, int(tooLong.Limit))
	case errors.Is(err, os.ErrDeadlineExceeded): // web.Server.ReadTimeout
		WriteError(w, http.StatusRequestTimeout, ErrBadRequest.Code, "the body did not come in time")
	default:
		WriteError(w, http.StatusBadRequest, ErrBadRequest.Code, "the body ended too early")
	}
}
