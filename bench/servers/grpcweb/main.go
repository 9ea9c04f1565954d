// Command grpcweb is the service of command grpcstd on package web.
package main

import (
	"net"

	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/myriad-go/myriad/bench/servers/harness/unary"
	"github.com/myriad-go/myriad/web"
)

func main() {
	harness.Main(map[string]harness.Start{
		"grpc": func(addr string) (net.Addr, error) {
			ln, err := (&web.Server{Handler: unary.Server(), Protocols: harness.ClearHTTP2()}).Listen("tcp", addr)
			if err != nil {
				return nil, err
			}
			return ln.Addr(), nil
		},
	})
}
