// Command web is package web with the handler that command nethttp has.
package main

import (
	"flag"
	"net"

	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/myriad-go/myriad/web"
)

func main() {
	inline := flag.Bool("inline", false, "run handlers on the loop")
	pool := flag.Bool("pool", false, "run handlers on the pool")
	reuse := flag.Bool("reuse", false, "use requests again")
	server := &web.Server{Handler: harness.Plaintext()}
	dispatch := func() *web.Server {
		server.ReuseRequests = *reuse
		switch {
		case *inline:
			server.Dispatch = web.DispatchInline
		case *pool:
			server.Dispatch = web.DispatchPool
		}
		return server
	}
	harness.Main(map[string]harness.Start{
		"http": func(addr string) (net.Addr, error) { return bound(dispatch().Listen("tcp", addr)) },
		"h2": func(addr string) (net.Addr, error) {
			server.Protocols = harness.ClearHTTP2()
			return bound(dispatch().Listen("tcp", addr))
		},
		"h2s": func(addr string) (net.Addr, error) {
			server.TLSConfig = harness.TLSConfig("h2")
			return bound(dispatch().ListenTLS("tcp", addr, "", ""))
		},
		"exposed": func(addr string) (net.Addr, error) {
			server.Handler = harness.Exposed()
			return bound(dispatch().Listen("tcp", addr))
		},
		"h2-exposed": func(addr string) (net.Addr, error) {
			server.Handler, server.Protocols = harness.Exposed(), harness.ClearHTTP2()
			return bound(dispatch().Listen("tcp", addr))
		},
		"https": func(addr string) (net.Addr, error) {
			server.TLSConfig = harness.TLSConfig()
			return bound(dispatch().ListenTLS("tcp", addr, "", ""))
		},
	})
}

func bound(ln *web.Listener, err error) (net.Addr, error) {
	if err != nil {
		return nil, err
	}
	return ln.Addr(), nil
}
