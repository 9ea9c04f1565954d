package push

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// This file makes an error of a hook's panic, so that a program's mistake about one client costs no
// other client anything, wherever the server has called the hook.

// A hookPanic is the error of a hook that has panicked. Clients are answered as for any other
// error: 100 "internal server error".
type hookPanic struct {
	value any
	stack []byte
}

func (p *hookPanic) Error() string { return fmt.Sprintf("panic: %v\n%s", p.value, p.stack) }

// caught sets err if the caller panics. The caller defers it.
func caught(err *error) {
	if v := recover(); v != nil {
		*err = &hookPanic{v, debug.Stack()}
	}
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
