package web

import (
	"context"
	"net/http"
)

// ownContextKey finds a requestContext behind the contexts that middleware has derived from it.
type ownContextKey struct{}

// ValuesOf returns a context with the values that middleware, Server.ConnContext and
// Server.BaseContext have set. It is for code that outlives the handler: the context does not end
// with the request. It is nil if there are none. It keeps what middleware has derived its context
// from, and with it the request: 1 to 3 kB. A foreign server's request has values always, unless
// its context is context.Background. Only the handler may call it.
func ValuesOf(r *http.Request) context.Context {
	ctx := r.Context()
	own, ours := ctx.Value(ownContextKey{}).(*requestContext)
	switch {
	case !ours && ctx == context.Background():
		return nil
	case !ours || ctx != own:
		return context.WithoutCancel(ctx)
	}
	if s := own.link.lane.s; s.BaseContext == nil && s.ConnContext == nil {
		return nil
	}
	return context.WithoutCancel(own.link.from.base)
}
