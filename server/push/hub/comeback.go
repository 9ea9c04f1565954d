package hub

import (
	"encoding/binary"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/myriad-go/myriad/internal/retryafter"
	"github.com/myriad-go/myriad/server/push/answer"
)

// An adviser tells clients and programs that the node cannot serve now when to come back. Each gets
// a time of its own, so that they do not come back together. What is refused for good gets none.
type adviser struct {
	*node
	toConnect *retryafter.Spread // for clients that connect
	toCall    *retryafter.Spread // for publications, and other calls of programs
}

func newAdviser(n *node, f *figures) *adviser {
	return &adviser{node: n,
		toConnect: retryafter.New(n.random.seed(), f.connects.Load),
		toCall:    retryafter.New(n.random.seed(), f.publishes.Load)}
}

// ConnectLater returns after which time a client may connect that was refused now. Each call stands
// for one client.
func (a *adviser) ConnectLater() time.Duration { return a.toConnect.Wait(a.clock.Now()) }

// CallLater returns after which time a program may repeat a call that failed now, and could succeed
// later. Each call stands for one.
func (a *adviser) CallLater() time.Duration { return a.toCall.Wait(a.clock.Now()) }

// RefuseForNow answers r, whose client may come back after wait: with the status, which is 429 or
// 503, and Retry-After (RFC 9110 §10.2.3). An EventSource gives up after any other status than 200
// (WHATWG HTML §9.2.3). It gets a stream that says when to come back, and ends.
func (a *adviser) RefuseForNow(w http.ResponseWriter, r *http.Request, wait time.Duration, status int, code uint32,
	message string) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Retry-After", retryafter.Seconds(wait))
	if !retryafter.IsEventSource(r.Method, r.Header["Accept"]) {
		answer.WriteError(w, status, code, message)
		return
	}
	body := retryafter.AppendStream(nil, message, wait)
	h.Set("Content-Type", retryafter.ContentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.Write(body) // an error means that the client has disconnected
}

// An EventForm is a Form whose messages may be Server-Sent Events. Their clients come back by
// themselves, and the hub tells them when before it ends a connection.
type EventForm interface {
	Form
	IsEvents() bool
}

// Refuse answers an HTTP request with the Error or the Disconnect of an operation or a hook. The
// status is 429 for ErrTooManyRequests and 503 for anything else that the client may try again,
// both with the time when, else 403. The client gets any other error as ErrInternal.
func (a *adviser) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	told, why := answer.ErrInternal, answer.Disconnect{}
	if errors.As(err, &why) {
		told = answer.Error{Code: uint32(why.Code), Message: why.Reason, Temporary: why.Reconnects()}
	} else {
		errors.As(err, &told)
	}
	switch {
	case told == answer.ErrTooManyRequests:
		a.RefuseForNow(w, r, a.ConnectLater(), http.StatusTooManyRequests, told.Code, told.Message)
	case told.Temporary:
		a.RefuseForNow(w, r, a.ConnectLater(), http.StatusServiceUnavailable, told.Code, told.Message)
	default:
		answer.WriteError(w, http.StatusForbidden, told.Code, told.Message)
	}
}

// WriteFailure answers a call that failed, with the time to repeat it if the status is 503. A
// Failure without a status is an error in the body, with status 200.
func (a *adviser) WriteFailure(w http.ResponseWriter, e *answer.Failure) {
	status := e.Status
	switch status {
	case 0:
		status = http.StatusOK
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", retryafter.Seconds(a.CallLater()))
	}
	answer.WriteError(w, status, e.Code, e.Message)
}

// seed returns a random number.
func (r random) seed() uint64 {
	var b [8]byte
	r.fill(b[:])
	return binary.BigEndian.Uint64(b[:])
}
