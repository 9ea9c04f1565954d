package centrifuge

import "fmt"

// An Error is the answer to one command that failed; the connection stays open. If Temporary is
// set, a retry may succeed.
type Error struct {
	Code      uint32
	Message   string
	Temporary bool
}

func (e Error) Error() string { return fmt.Sprintf("centrifuge: error %d: %s", e.Code, e.Message) }

// The protocol's own errors. Codes below 400 belong to it.
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
	ErrExpired           = Error{Code: 110, Message: "expired"}
	ErrTooManyRequests   = Error{Code: 111, Message: "too many requests", Temporary: true}

	ErrUnrecoverablePosition = Error{Code: 112, Message: "unrecoverable position"}
)

// A Disconnect ends a connection. Over WebSocket code and reason are those of the close frame, so
// the reason must stay below 124 bytes. Clients reconnect after 3000–3499, but not after 3500–3999.
type Disconnect struct {
	Code   uint16
	Reason string
}

func (d Disconnect) Error() string {
	return fmt.Sprintf("centrifuge: disconnect %d: %s", d.Code, d.Reason)
}

// The protocol's own disconnects.
var (
	Closed           = Disconnect{3000, "connection closed"} // never sent: the peer went away by itself
	Shutdown         = Disconnect{3001, "shutdown"}
	ServerError      = Disconnect{3004, "internal server error"}
	Expired          = Disconnect{3005, "connection expired"}
	Slow             = Disconnect{3008, "slow"}
	WriteError       = Disconnect{3009, "write error"}
	Insufficient     = Disconnect{3010, "insufficient state"}
	ForceReconnect   = Disconnect{3011, "force reconnect"}
	NoPong           = Disconnect{3012, "no pong"}
	InvalidToken     = Disconnect{3500, "invalid token"}
	BadRequest       = Disconnect{3501, "bad request"}
	Stale            = Disconnect{3502, "stale"}
	ForceNoReconnect = Disconnect{3503, "force disconnect"}
	ConnectionLimit  = Disconnect{3504, "connection limit"}
	NotAvailable     = Disconnect{3508, "not available"}
)

// An Unsubscribed is why the server has ended a subscription. Clients subscribe again if the code
// is 2500 or above.
type Unsubscribed struct {
	Code   uint32
	Reason string
}

// The protocol's own codes.
var (
	ByServer            = Unsubscribed{2000, "server unsubscribe"}
	InsufficientState   = Unsubscribed{2500, "insufficient state"} // something was missed: subscribe again and recover
	SubscriptionExpired = Unsubscribed{2501, "expired"}
)
