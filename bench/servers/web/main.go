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
	auto := flag.Bool("auto", false, "run handlers where they are cheapest")
	server := &web.Server{Handler: harness.Plaintext()}
	listen := func(f func(network, addr string) (*web.Listener, error)) harness.Start {
		return func(addr string) (net.Addr, error) {
			switch {
			case *inline:
				server.Dispatch = web.DispatchInline
			case *auto:
				server.Dispatch = web.DispatchAuto
			}
			ln, err := f("tcp", addr)
			if err != nil {
				return nil, err
			}
			return ln.Addr(), nil
		}
	}
	harness.Main(map[string]harness.Start{
		"http": listen(server.Listen),
		"https": listen(func(network, addr string) (*web.Listener, error) {
			server.TLSConfig = harness.TLSConfig()
			return server.ListenTLS(network, addr, "", "")
		}),
	})
}
