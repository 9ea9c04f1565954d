// Package answer is what clients and programs are answered when something fails: errors, the
// reasons why connections and subscriptions end, with their codes, and how HTTP says them.
package answer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/myriad-go/myriad/server/push/bus"
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

// A Failure is the answer to a request that failed.
type Failure struct {
	Status  int // of HTTP; 0 means 200: the error is in the body
	Code    uint32
	Message string
}

func (e *Failure) Error() string { return "push: api: " + e.Message }

// FailureOf turns err into a *Failure. An error whose text the client must not see goes to the log.
func FailureOf(log *slog.Logger, method string, err error) *Failure {
	var known *Failure
	var protocol Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &protocol):
		return &Failure{Code: protocol.Code, Message: protocol.Message}
	case errors.Is(err, ErrDraining), errors.Is(err, bus.ErrClosed):
		return &Failure{http.StatusServiceUnavailable, ErrInternal.Code, "the server is shutting down"}
	case errors.Is(err, ErrOverloaded):
		return &Failure{http.StatusServiceUnavailable, ErrTooManyRequests.Code,
			"more is published than can be delivered: publish again later"}
	case errors.Is(err, bus.ErrUncertain):
		return &Failure{http.StatusServiceUnavailable, ErrInternal.Code,
			"the publication was sent, but not confirmed " +
				"in time: send it again with the same idempotency_key"}
	}
	log.Error("push: a request to the API failed", "method", method, "error", err)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &Failure{http.StatusServiceUnavailable, ErrInternal.Code,
			"the server could not do this in time: send it " +
				"again later; its log has the reason"}
	}
	return &Failure{Code: ErrInternal.Code, Message: "the request failed; the server's log has the reason"}
}

// ErrDraining is returned by calls while the server shuts down.
var ErrDraining = errors.New("push: the server is shutting down: publish to another server, or retry later")

// ErrOverloaded is returned by calls that publish while what was published before cannot be
// delivered. Nothing was published.
var ErrOverloaded = errors.New("push: more is published than can be delivered: publish again after some seconds")

// An Error is the answer to a client's command that failed; the connection stays open. If Temporary
// is set, a retry may succeed. Codes below 400 belong to the server, and 0 is none: a hook that
// returns an Error without a code has failed, and its client is answered ErrInternal.
type Error struct {
	Code      uint32 `json:"code"`
	Message   string `json:"message"`
	Temporary bool   `json:"temporary,omitempty"`
}

func (e Error) Error() string { return fmt.Sprintf("push: error %d: %s", e.Code, e.Message) }

// The server's own errors. Every door sends their codes, and so does the HTTP API.
var (
	ErrInternal          = Error{Code: 100, Message: "internal server error", Temporary: true}
	ErrUnauthorized      = Error{Code: 101, Message: "unauthorized"}
	ErrUnknownChannel    = Error{Code: 102, Message: "unknown channel"}
	ErrPermissionDenied  = Error{Code: 103, Message: "permission denied"}
	ErrMethodNotFound    = Error{Code: 104, Message: "method not found"}
	ErrAlreadySubscribed = Error{Code: 105, Message: "already subscribed"}
	ErrLimitExceeded     = Error{Code: 106, Message: "limit exceeded"}
	ErrBadRequest        = Error{Code: 107, Message: "bad request"}
	ErrNotAvailable      = Error{Code: 108, Message: "not available"}
	ErrTokenExpired      = Error{Code: 109, Message: "token expired"}
	ErrTooManyRequests   = Error{Code: 111, Message: "too many requests", Temporary: true}
	ErrUnrecoverable     = Error{Code: 112, Message: "unrecoverable position"}
)

// A Disconnect is why a connection ends, for the server's own reasons or as the error of a hook.
// Clients reconnect after the codes 3000 to 3499 and 4000 to 4499, and stay away after the others.
// A hook uses 4000 to 4999. The reason stays below 124 bytes, because a close frame carries it. A
// hook's zero value is 3503 "force disconnect", after which clients stay away. One that no close
// frame can carry is logged, and the connection is closed with 3004. Clients without a connection
// that has codes, as those of /events, are answered with the same codes.
type Disconnect struct {
	Code   uint16 `json:"code"`
	Reason string `json:"reason"`
}

// Reconnects reports whether clients come back.
func (e Disconnect) Reconnects() bool { return e.Code < 3500 || e.Code >= 4000 && e.Code < 4500 }

// maxReason is the most bytes of a close frame's reason (RFC 6455 §5.5).
const maxReason = 123

// BadDisconnect is what is said of a Disconnect that is not valid.
const BadDisconnect = "disconnect needs a code of 3000 to 4999 and a reason of at most 123 bytes of UTF-8"

// IsValid reports whether a close frame can carry it (RFC 6455 §5.5.1, §7.4.2).
func (e Disconnect) IsValid() bool {
	return e.Code >= 3000 && e.Code <= 4999 && len(e.Reason) <= maxReason && utf8.ValidString(e.Reason)
}

func (e Disconnect) Error() string { return fmt.Sprintf("push: disconnect %d: %s", e.Code, e.Reason) }

// The server's own endings.
var (
	DisconnectShutdown            = Disconnect{3001, "shutdown"}
	DisconnectServerError         = Disconnect{3004, "internal server error"}
	DisconnectExpired             = Disconnect{3005, "connection expired"}
	DisconnectSubscriptionExpired = Disconnect{3006, "subscription expired"}
	DisconnectSlow                = Disconnect{3008, "slow"}
	DisconnectInsufficientState   = Disconnect{3010, "insufficient state"}
	DisconnectNoPong              = Disconnect{3012, "no pong"}
	DisconnectTooManyRequests     = Disconnect{3013, "too many requests"}
	DisconnectInvalidToken        = Disconnect{3500, "invalid token"}
	DisconnectBadRequest          = Disconnect{3501, "bad request"}
	DisconnectStale               = Disconnect{3502, "stale"}
	DisconnectForced              = Disconnect{3503, "force disconnect"}
	DisconnectPermissionDenied    = Disconnect{3507, "permission denied"}
	DisconnectNotAvailable        = Disconnect{3508, "not available"}
)

// An Unsubscription is why the server has ended a subscription. Clients subscribe again if the code
// is 2500 or above.
type Unsubscription struct {
	Code   uint32
	Reason string
}

// The server's own unsubscriptions.
var (
	UnsubscribedByServer = Unsubscription{2000, "server unsubscribe"}
	// The client has missed something. It subscribes again and recovers.
	UnsubscribedInsufficient = Unsubscription{2500, "insufficient state"}
	UnsubscribedExpired      = Unsubscription{2501, "subscription expired"}
)
