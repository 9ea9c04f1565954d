// Command ginweb is gin on package web, with the router that command gin has.
package main

import (
	"flag"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/myriad-go/myriad/web"
)

func main() {
	inline := flag.Bool("inline", false, "run the handler on the loop")
	harness.Main(map[string]harness.Start{"http": func(addr string) (net.Addr, error) {
		gin.SetMode(gin.ReleaseMode)
		router := gin.New()
		router.GET(harness.Path, func(c *gin.Context) { c.String(http.StatusOK, harness.Answer) })
		server := &web.Server{Handler: router}
		if *inline {
			server.Dispatch = web.DispatchInline
		}
		ln, err := server.Listen("tcp", addr)
		if err != nil {
			return nil, err
		}
		return ln.Addr(), nil
	}})
}
