// Command gin is gin on the standard library's server.
package main

import (
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

func main() {
	harness.Main(map[string]harness.Start{"http": func(addr string) (net.Addr, error) {
		gin.SetMode(gin.ReleaseMode)
		router := gin.New()
		router.GET(harness.Path, func(c *gin.Context) { c.String(http.StatusOK, harness.Answer) })
		return harness.Listen(addr, (&http.Server{Handler: router}).Serve)
	}})
}
