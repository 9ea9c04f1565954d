// Command grpcstd is a service of grpc-go, on net/http by its ServeHTTP or on its own server.
package main

import (
	"flag"
	"net"
	"net/http"

	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/myriad-go/myriad/bench/servers/harness/unary"
)

func main() {
	own := flag.Bool("own", false, "use grpc-go's server, not net/http's")
	harness.Main(map[string]harness.Start{
		"grpc": func(addr string) (net.Addr, error) {
			rpc := unary.Server()
			if *own {
				return harness.Listen(addr, rpc.Serve)
			}
			return harness.Listen(addr, (&http.Server{Handler: rpc, Protocols: harness.ClearHTTP2()}).Serve)
		},
	})
}
