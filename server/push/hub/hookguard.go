package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	"github.com/myriad-go/myriad/server/push/answer"
)

// This file makes an error of a hook's panic, and replaces answers that no client understands. So a
// program's mistake about one client costs no other client anything, wherever the server has called
// the hook.

// A hookPanic is the error of a hook that has panicked. Clients are answered as for any other
// error: 100 "internal server error".
type hookPanic struct {
	value any
	stack []byte
}

func (p *hookPanic) Error() string { return fmt.Sprintf("panic: %v\n%s", p.value, p.stack) }

// caught sets err if the caller panics, and replaces an err that no client understands. The caller
// defers it.
func caught(err *error) {
	if v := recover(); v != nil {
		*err = &hookPanic{v, debug.Stack()}
	}
	*err = understood(*err)
}

// errBadDisconnect is why a hook's Disconnect is replaced.
var errBadDisconnect = errors.New("push: a hook's " + answer.BadDisconnect)

// understood returns a hook's error as every client understands it:
//
//   - The zero Disconnect is 3503 "force disconnect".
//   - A Disconnect that no close frame can carry is a failure of the hook, and ends the connection
//     with 3004.
//   - An Error without a code is a failure of the hook: clients take the code 0 for success.
//   - The text of an Error is UTF-8, as JSON and Protobuf want it.
func understood(err error) error {
	var why answer.Disconnect
	var told answer.Error
	switch {
	case errors.As(err, &why):
		if why == (answer.Disconnect{}) {
			return errors.Join(answer.DisconnectForced, err)
		}
		if !why.IsValid() {
			return errors.Join(answer.DisconnectServerError, errBadDisconnect, err)
		}
	case errors.As(err, &told) && told.Code == 0:
		// %v hides the Error from errors.As
		return fmt.Errorf("push: a hook's Error needs a code: use one from 400 on: %v", err)
	case told.Code != 0 && !utf8.ValidString(told.Message):
		told.Message = strings.ToValidUTF8(told.Message, "\uFFFD")
		return told
	}
	return err
}

// guarded returns h with errors in place of panics.
func (h Hooks) guarded() Hooks {
	h.Connect = guardedHook(h.Connect)
	h.Subscribe = guardedHook(h.Subscribe)
	h.SubRefresh = guardedHook(h.SubRefresh)
	h.Publish = guardedHook(h.Publish)
	if f := h.Refresh; f != nil {
		h.Refresh = func(ctx context.Context, client Caller) (a RefreshAnswer, err error) {
			defer caught(&err)
			return f(ctx, client)
		}
	}
	return h
}

// A hook asks about a client and its request.
type hook[Request, Answer any] = func(ctx context.Context, client Caller, r Request) (Answer, error)

func guardedHook[Request, Answer any](f hook[Request, Answer]) hook[Request, Answer] {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, client Caller, r Request) (a Answer, err error) {
		defer caught(&err)
		return f(ctx, client, r)
	}
}

// guardedRPC is guarded for Config.RPC.
func guardedRPC(f func(context.Context, Caller, string, []byte) ([]byte, error)) func(context.Context, Caller, string,
	[]byte) ([]byte, error) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, client Caller, method string, data []byte) (answer []byte, err error) {
		defer caught(&err)
		return f(ctx, client, method, data)
	}
}

// guardedMessage is guarded for Config.Message, which has no error: the log alone has the panic.
func guardedMessage(f func(context.Context, Caller, []byte), log *slog.Logger) func(context.Context, Caller, []byte) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, client Caller, data []byte) {
		var err error
		defer func() {
			if err != nil {
				log.Error("push: a hook failed", "hook", "message", "client", client.Client, "error", err)
			}
		}()
		defer caught(&err)
		f(ctx, client, data)
	}
}
