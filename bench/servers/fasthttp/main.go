// Command fasthttp is fasthttp with its default settings.
package main

import (
	"net"

	"github.com/valyala/fasthttp"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

func main() {
	harness.Main(map[string]harness.Start{"http": func(addr string) (net.Addr, error) {
		server := &fasthttp.Server{Handler: plaintext}
		return harness.Listen(addr, server.Serve)
	}})
}

func plaintext(ctx *fasthttp.RequestCtx) {
	if string(ctx.Path()) != harness.Path {
		ctx.SetStatusCode(fasthttp.StatusNotFound)
		return
	}
	ctx.SetContentType(harness.ContentType)
	ctx.SetBodyString(harness.Answer)
}
