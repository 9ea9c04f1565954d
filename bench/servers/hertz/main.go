// Command hertz is hertz on its own poller, netpoll, which is what it does by default.
package main

import (
	"context"
	"net"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/hlog"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

func main() {
	harness.Main(map[string]harness.Start{"http": func(addr string) (net.Addr, error) {
		hlog.SetLevel(hlog.LevelFatal)
		return harness.Listen(addr, func(ln net.Listener) error {
			h := server.New(server.WithListener(ln), server.WithDisablePrintRoute(true))
			h.GET(harness.Path, plaintext)
			return h.Run()
		})
	}})
}

func plaintext(_ context.Context, c *app.RequestContext) {
	c.SetContentType(harness.ContentType)
	c.Response.SetBodyString(harness.Answer)
}
