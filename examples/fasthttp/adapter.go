package main

import (
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/valyala/fasthttp"
)

// Adapt makes an http.Handler of a handler for fasthttp, so that it runs on web.Server. As on
// fasthttp's own server the RequestCtx and all that it holds are used again as soon as h returns. A
// request's body streams: read it from ctx.RequestBodyStream, or let PostBody gather it; maxBody
// bounds it, in bytes. Not carried over: ctx.Hijack, whose handler would own the connection, and
// what asks for fasthttp's server behind the context.
func Adapt(h fasthttp.RequestHandler, maxBody int64) http.Handler {
	pool := sync.Pool{New: func() any { return new(fasthttp.RequestCtx) }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := pool.Get().(*fasthttp.RequestCtx)
		begin(ctx, w, r, maxBody)
		h(ctx)
		if late := ctx.LastTimeoutErrorResponse(); late != nil {
			answer(w, late) // and the goroutine that still uses ctx keeps it
			return
		}
		if ctx.Hijacked() {
			http.Error(w, "Hijack is not carried over", http.StatusNotImplemented)
		} else {
			answer(w, &ctx.Response)
		}
		ctx.ResetUserValues()
		ctx.Request.Reset()
		ctx.Response.Reset()
		pool.Put(ctx)
	})
}

// begin fills ctx with the request.
func begin(ctx *fasthttp.RequestCtx, w http.ResponseWriter, r *http.Request, maxBody int64) {
	ctx.Init2(conn(r), nil, false)
	req := &ctx.Request
	req.Header.SetMethod(r.Method)
	req.SetRequestURI(r.RequestURI)
	req.Header.SetProtocol(r.Proto)
	req.Header.SetHost(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			req.Header.Add(name, v)
		}
	}
	if r.ContentLength != 0 {
		req.SetBodyStream(http.MaxBytesReader(w, r.Body, maxBody), int(r.ContentLength))
	}
}

// answer writes what the handler has put together.
func answer(w http.ResponseWriter, resp *fasthttp.Response) {
	for name, value := range resp.Header.All() {
		w.Header().Add(string(name), string(value))
	}
	w.Header().Del("Content-Length") // the body says it
	if resp.Header.ConnectionClose() {
		w.Header().Set("Connection", "close")
	}
	if n := resp.Header.ContentLength(); resp.IsBodyStream() && n >= 0 {
		w.Header().Set("Content-Length", string(fasthttp.AppendUint(nil, n)))
	}
	w.WriteHeader(resp.StatusCode())
	if resp.IsBodyStream() {
		_, _ = io.Copy(w, resp.BodyStream()) // a client that is gone takes no more
		_ = resp.CloseBodyStream()
		return
	}
	_, _ = w.Write(resp.Body())
}

// conn shows the addresses of the request to fasthttp, which asks a net.Conn for them.
func conn(r *http.Request) net.Conn {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	remote, _ := net.ResolveTCPAddr("tcp", r.RemoteAddr) // digits: nothing is looked up
	return &addresses{local: local, remote: remote}
}

type addresses struct {
	net.Conn
	local  net.Addr
	remote *net.TCPAddr
}

func (a *addresses) LocalAddr() net.Addr  { return a.local }
func (a *addresses) RemoteAddr() net.Addr { return a.remote }
