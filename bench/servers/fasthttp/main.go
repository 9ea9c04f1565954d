// Command fasthttp is fasthttp with its default settings.
package main

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

func main() {
	server := &fasthttp.Server{Handler: plaintext}
	harness.Main(map[string]harness.Start{
		"http": func(addr string) (net.Addr, error) { return harness.Listen(addr, server.Serve) },
		"exposed": func(addr string) (net.Addr, error) {
			return harness.Listen(addr, (&fasthttp.Server{Handler: exposed, Logger: log.New(io.Discard, "", 0)}).Serve)
		},
		"https": func(addr string) (net.Addr, error) {
			config := harness.TLSConfig()
			return harness.Listen(addr,
				func(ln net.Listener) error { return server.Serve(tls.NewListener(ln, config)) })
		},
	})
}

var large = make([]byte, harness.LargeAnswer)

// exposed is what harness.Exposed is; fasthttp has read the body before it is called.
func exposed(ctx *fasthttp.RequestCtx) {
	switch string(ctx.Path()) {
	case harness.LargePath:
		ctx.Response.SetBodyRaw(large)
	case harness.UploadPath:
		ctx.SetBodyString(harness.Answer)
	default:
		plaintext(ctx)
	}
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
