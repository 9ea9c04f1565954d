package answer

import (
	"testing"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// The codes, and what client libraries do after them, are those of Centrifuge's definitions
// (errors.go, disconnect.go and unsubscribe.go there, and codes in
// https://centrifugal.dev/docs/server/codes).
func TestCodesAreCentrifuge(t *testing.T) {
	for e, want := range map[Error]Error{
		ErrInternal:          {100, "internal server error", true},
		ErrUnauthorized:      {101, "unauthorized", false},
		ErrUnknownChannel:    {102, "unknown channel", false},
		ErrPermissionDenied:  {103, "permission denied", false},
		ErrMethodNotFound:    {104, "method not found", false},
		ErrAlreadySubscribed: {105, "already subscribed", false},
		ErrLimitExceeded:     {106, "limit exceeded", false},
		ErrBadRequest:        {107, "bad request", false},
		ErrNotAvailable:      {108, "not available", false},
		ErrTokenExpired:      {109, "token expired", false},
		ErrTooManyRequests:   {111, "too many requests", true},
		ErrUnrecoverable:     {112, "unrecoverable position", false},
	} {
		if e != want {
			t.Errorf("%v, want %v", e, want)
		}
	}
	for _, row := range []struct {
		got       Disconnect
		code      uint16
		reason    string
		reconnect bool
	}{
		{DisconnectShutdown, 3001, "shutdown", true},
		{DisconnectServerError, 3004, "internal server error", true},
		{DisconnectExpired, 3005, "connection expired", true},
		{DisconnectSubscriptionExpired, 3006, "subscription expired", true},
		{DisconnectTooManyRequests, 3013, "too many requests", true},
		{DisconnectPermissionDenied, 3507, "permission denied", false},
		{DisconnectSlow, 3008, "slow", true},
		{DisconnectInsufficientState, 3010, "insufficient state", true},
		{DisconnectNoPong, 3012, "no pong", true},
		{DisconnectInvalidToken, 3500, "invalid token", false},
		{DisconnectBadRequest, 3501, "bad request", false},
		{DisconnectStale, 3502, "stale", false},
		{DisconnectForced, 3503, "force disconnect", false},
		{DisconnectNotAvailable, 3508, "not available", false},
		{Disconnect{4000, "of the application"}, 4000, "of the application", true},
		{Disconnect{4500, "of the application"}, 4500, "of the application", false},
	} {
		if row.got != (Disconnect{row.code, row.reason}) ||
			centrifuge.Disconnect(row.got).Reconnect() != row.reconnect ||
			row.got.Reconnects() != row.reconnect {
			t.Errorf("%v, want %v with reconnect %v", row.got, row.code, row.reconnect)
		}
	}
	for got, want := range map[Unsubscription]Unsubscription{
		UnsubscribedByServer:     {2000, "server unsubscribe"},
		UnsubscribedInsufficient: {2500, "insufficient state"},
		UnsubscribedExpired:      {2501, "subscription expired"},
	} {
		if got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
