package hub

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/myriad-go/myriad/server/push/answer"
)

// callbacks are the functions of the server's program: its hooks, and what answers rpc commands and
// takes messages. A panic of one is an error (hookguard.go).
type callbacks struct {
	*node
	refusals  *refusals
	hooks     Hooks
	onRPC     func(ctx context.Context, client Caller, method string, data []byte) ([]byte, error) // nil: no answer
	onMessage func(ctx context.Context, client Caller, data []byte)                                // nil: none is taken
	callers   callers
}

func newCallbacks(n *node, refusals *refusals, hooks Hooks,
	onRPC func(context.Context, Caller, string, []byte) ([]byte, error), onMessage func(context.Context, Caller,
		[]byte),
) *callbacks {
	return &callbacks{node: n, refusals: refusals, hooks: hooks.guarded(), onRPC: guardedRPC(onRPC),
		onMessage: guardedMessage(onMessage, n.log),
		callers:   callers{wanted: hooks.any() || onRPC != nil || onMessage != nil}}
}

// A hookRefusal is an Error or a Disconnect of a hook, which was counted as such, or logged.
type hookRefusal struct{ error }

func (r hookRefusal) Unwrap() error { return r.error }

// IsHookRefusal reports whether a hook has decided err, which was counted then.
func IsHookRefusal(err error) bool { return errors.As(err, new(hookRefusal)) }

// hookFailed returns the error for the client. It counts what the hook has decided, and logs an
// error that the client must not see.
func (c *callbacks) hookFailed(hook string, client Caller, remote string, err error) error {
	switch {
	case errors.Is(err, errBadDisconnect):
		c.log.Error("push: a hook failed", "hook", hook, "client", client.Client, "error", OneLine(err))
		return hookRefusal{err}
	case errors.As(err, new(answer.Error)), errors.As(err, new(answer.Disconnect)):
		c.refusals.CountRefusal(RefusedHook, remote, "hook", hook, "client", client.Client, "user", client.User,
			"error", OneLine(err))
		return hookRefusal{err}
	}
	c.log.Error("push: a hook failed", "hook", hook, "client", client.Client, "error", err)
	return answer.ErrInternal
}

// sendable returns why, or what is sent instead of a Disconnect that no close frame can carry.
func (c *callbacks) sendable(why answer.Disconnect) answer.Disconnect {
	switch {
	case why == answer.Disconnect{}:
		return answer.DisconnectForced
	case why.IsValid():
		return why
	}
	c.log.Error("push: a door's "+answer.BadDisconnect, "code", why.Code, "reason bytes", len(why.Reason))
	return answer.DisconnectServerError
}

// A RequestInfo is what hooks may learn of the request by which a client has connected.
type RequestInfo struct {
	header http.Header
	values context.Context // nil without a hook for it
}

// RequestInfo returns what hooks may learn of a request, or nil if there is no hook. Only the
// request's handler may call it.
func (c *callbacks) RequestInfo(r *http.Request) *RequestInfo {
	if !c.callers.wanted {
		return nil
	}
	return &RequestInfo{c.hooks.selected(r.Header), c.hooks.values(r)}
}

// KeepsValues reports whether a has the values of the request's context, so that the request need
// not keep it.
func (a *RequestInfo) KeepsValues() bool { return a != nil && a.values != nil }

// caller returns what hooks learn of a client with that form.
func (a *RequestInfo) caller(f Form) Caller {
	c := Caller{Encoding: "json"}
	if c.Transport, c.Protocol = f.Kind(); c.Protocol == "protobuf" {
		c.Encoding = "binary"
	}
	if a != nil {
		c.Header, c.values = a.header, a.values
	}
	return c
}

// callers are what hooks know of sessions besides their identity, by the sessions' ids.
type callers struct {
	wanted bool // a callback gets them; else list is empty
	mu     sync.Mutex
	list   map[clientID]Caller
}

func (c *callers) add(id clientID, known Caller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list == nil {
		c.list = make(map[clientID]Caller)
	}
	c.list[id] = known
}

func (c *callers) setMeta(id clientID, meta []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.list[id]; ok {
		known.Meta = meta
		c.list[id] = known
	}
}

// dropValues frees what only Connect gets.
func (c *callers) dropValues(id clientID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.list[id]; ok {
		known.values = nil
		c.list[id] = known
	}
}

func (c *callers) get(id clientID) Caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list[id]
}

func (c *callers) drop(id clientID) {
	if !c.wanted {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.list, id)
}
