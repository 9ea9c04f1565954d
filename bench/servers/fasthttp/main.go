// Command fasthttp is fasthttp with its default settings.
package main

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

func main() {
	server := &fasthttp.Server{Handler: plaintext}
	harness.Main(map[string]harness.Start{
		"http": func(addr string) (net.Addr, error) { return harness.Listen(addr, server.Serve) },
		"https": func(addr string) (net.Addr, error) {
			config := harness.TLSConfig()
			return harness.Listen(addr, func(ln net.Listener) error { return server.Serve(tls.NewListener(ln, config)) })
		},
	})
}

func plaintext(ctx *fasthttp.RequestCtx) {
	switch string(ctx.Path()) {
	case harness.Path:
		harness.Dally(ctx.URI().QueryString())
	case harness.SlowPath:
		time.Sleep(harness.Delay)
	default:
		ctx.SetStatusCode(fasthttp.StatusNotFound)
		return
	}
	ctx.SetContentType(harness.ContentType)
	ctx.SetBodyString(harness.Answer)
}
