package push

import "fmt"

// An Error is the answer to a client's command that failed; the connection stays open. If Temporary
// is set, a retry may succeed. Codes below 400 belong to the server.
type Error struct {
	Code      uint32
	Message   string
	Temporary bool
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
// frame can carry is logged, and the connection is closed with 3004.
type Disconnect struct {
	Code   uint16
	Reason string
}

// Reconnects reports whether clients come back.
func (e Disconnect) Reconnects() bool { return e.Code < 3500 || e.Code >= 4000 && e.Code < 4500 }

// isValid reports whether a close frame can carry it (RFC 6455 §7.4.2).
func (e Disconnect) isValid() bool {
	return e.Code >= 3000 && e.Code <= 4999 && len(e.Reason) <= maxReason
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
	unsubscribedByServer = Unsubscription{2000, "server unsubscribe"}
	// The client has missed something. It subscribes again and recovers.
	unsubscribedInsufficient = Unsubscription{2500, "insufficient state"}
	unsubscribedExpired      = Unsubscription{2501, "subscription expired"}
)
