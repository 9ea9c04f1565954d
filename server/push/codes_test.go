package push

import (
	"testing"

	"github.com/myriad-go/myriad/server/push/internal/centrifuge"
)

// The codes, and what client libraries do after them, are those of Centrifuge's definitions
// (errors.go, disconnect.go and unsubscribe.go there, and codes in
// https://centrifugal.dev/docs/server/codes).
func TestCodesAreCentrifuge(t *testing.T) {
	for e, want := range map[Error]Error{
		failInternal:          {100, "internal server error", true},
		failUnauthorized:      {101, "unauthorized", false},
		failUnknownChannel:    {102, "unknown channel", false},
		failPermissionDenied:  {103, "permission denied", false},
		failMethodNotFound:    {104, "method not found", false},
		failAlreadySubscribed: {105, "already subscribed", false},
		failLimitExceeded:     {106, "limit exceeded", false},
		failBadRequest:        {107, "bad request", false},
		failNotAvailable:      {108, "not available", false},
		failTokenExpired:      {109, "token expired", false},
		failTooManyRequests:   {111, "too many requests", true},
		failUnrecoverable:     {112, "unrecoverable position", false},
	} {
		if e != want {
			t.Errorf("%v, want %v", e, want)
		}
	}
	for _, row := range []struct {
		got       ending
		code      uint16
		reason    string
		reconnect bool
	}{
		{endShutdown, 3001, "shutdown", true},
		{endServerError, 3004, "internal server error", true},
		{endExpired, 3005, "connection expired", true},
		{endSubscriptionExpired, 3006, "subscription expired", true},
		{endTooManyRequests, 3013, "too many requests", true},
		{endPermissionDenied, 3507, "permission denied", false},
		{endSlow, 3008, "slow", true},
		{endInsufficient, 3010, "insufficient state", true},
		{endNoPong, 3012, "no pong", true},
		{endInvalidToken, 3500, "invalid token", false},
		{endBadRequest, 3501, "bad request", false},
		{endStale, 3502, "stale", false},
		{endForceNoReconnect, 3503, "force disconnect", false},
		{endNotAvailable, 3508, "not available", false},
		{ending{4000, "of the application"}, 4000, "of the application", true},
		{ending{4500, "of the application"}, 4500, "of the application", false},
	} {
		if row.got != (ending{row.code, row.reason}) || centrifuge.Disconnect(row.got).Reconnect() != row.reconnect ||
			row.got.reconnects() != row.reconnect {
			t.Errorf("%v, want %v with reconnect %v", row.got, row.code, row.reconnect)
		}
	}
	for got, want := range map[unsubscription]unsubscription{
		unsubscribedByServer:     {2000, "server unsubscribe"},
		unsubscribedInsufficient: {2500, "insufficient state"},
		unsubscribedExpired:      {2501, "subscription expired"},
	} {
		if got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
