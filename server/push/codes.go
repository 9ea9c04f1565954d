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
	failInternal          = Error{Code: 100, Message: "internal server error", Temporary: true}
	failUnauthorized      = Error{Code: 101, Message: "unauthorized"}
	failUnknownChannel    = Error{Code: 102, Message: "unknown channel"}
	failPermissionDenied  = Error{Code: 103, Message: "permission denied"}
	failMethodNotFound    = Error{Code: 104, Message: "method not found"}
	failAlreadySubscribed = Error{Code: 105, Message: "already subscribed"}
	failLimitExceeded     = Error{Code: 106, Message: "limit exceeded"}
	failBadRequest        = Error{Code: 107, Message: "bad request"}
	failNotAvailable      = Error{Code: 108, Message: "not available"}
	failTokenExpired      = Error{Code: 109, Message: "token expired"}
	failTooManyRequests   = Error{Code: 111, Message: "too many requests", Temporary: true}
	failUnrecoverable     = Error{Code: 112, Message: "unrecoverable position"}
)

// A Disconnect is the error of a hook that ends the client's connection. Clients reconnect after
// the codes 4000 to 4499, and stay away after 4500 to 4999. The zero value is 3503 "force
// disconnect", after which they stay away. One that no close frame can carry is logged, and the
// connection is closed with 3004.
type Disconnect = ending

// An ending is why the server ends a connection. The reason stays below 124 bytes, because a close
// frame carries it. After 3000–3499 and 4000–4499 clients reconnect, after the other codes they do
// not.
type ending struct {
	Code   uint16
	Reason string
}

// reconnects reports whether clients come back.
func (e ending) reconnects() bool { return e.Code < 3500 || e.Code >= 4000 && e.Code < 4500 }

// isValid reports whether a close frame can carry it (RFC 6455 §7.4.2).
func (e ending) isValid() bool { return e.Code >= 3000 && e.Code <= 4999 && len(e.Reason) <= maxReason }

func (e ending) Error() string { return fmt.Sprintf("push: disconnect %d: %s", e.Code, e.Reason) }

// The server's own endings.
var (
	endShutdown            = ending{3001, "shutdown"}
	endServerError         = ending{3004, "internal server error"}
	endExpired             = ending{3005, "connection expired"}
	endSubscriptionExpired = ending{3006, "subscription expired"}
	endSlow                = ending{3008, "slow"}
	endInsufficient        = ending{3010, "insufficient state"}
	endNoPong              = ending{3012, "no pong"}
	endTooManyRequests     = ending{3013, "too many requests"}
	endInvalidToken        = ending{3500, "invalid token"}
	endBadRequest          = ending{3501, "bad request"}
	endStale               = ending{3502, "stale"}
	endForceNoReconnect    = ending{3503, "force disconnect"}
	endPermissionDenied    = ending{3507, "permission denied"}
	endNotAvailable        = ending{3508, "not available"}
)

// An unsubscription is why the server has ended a subscription. Clients subscribe again if the code
// is 2500 or above.
type unsubscription struct {
	Code   uint32
	Reason string
}

// The server's own unsubscriptions.
var (
	unsubscribedByServer = unsubscription{2000, "server unsubscribe"}
	// The client has missed something. It subscribes again and recovers.
	unsubscribedInsufficient = unsubscription{2500, "insufficient state"}
	unsubscribedExpired      = unsubscription{2501, "subscription expired"}
)
