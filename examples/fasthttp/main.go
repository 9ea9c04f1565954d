// Command fasthttp runs a handler that was written for fasthttp on Myriad, through an adapter.
//
//	go run ./examples/fasthttp
//	curl 'localhost:8080/hello?name=Ann'
//	curl --data-binary @main.go localhost:8080/count
package main

import (
	"flag"
	"fmt"
	"log"

	"github.com/valyala/fasthttp"

	"github.com/myriad-go/myriad/web"
)

// maxBody is the largest request body in bytes.
const maxBody = 8 << 20

func main() {
	addr := flag.String("listen", "127.0.0.1:8080", "host:port to listen on")
	flag.Parse()
	log.Print("serving on http://", *addr)
	log.Fatal(web.ListenAndServe(*addr, Adapt(handle, maxBody)))
}

func handle(ctx *fasthttp.RequestCtx) {
	switch string(ctx.Path()) {
	case "/hello":
		fmt.Fprintf(ctx, "Hello, %s!", ctx.QueryArgs().Peek("name"))
	case "/count":
		body, err := ctx.Request.BodyUncompressed()
		if err != nil {
			ctx.Error(err.Error(), fasthttp.StatusBadRequest)
			return
		}
		fmt.Fprintf(ctx, "%d bytes by %s from %s", len(body), ctx.Method(), ctx.RemoteIP())
	case "/redirect":
		ctx.Redirect("/hello?name=again", fasthttp.StatusFound)
	default:
		ctx.NotFound()
	}
}
