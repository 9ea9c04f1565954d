// Command nethttp is the standard library's server.
package main

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

func main() {
	server := &http.Server{Handler: harness.Plaintext()}
	harness.Main(map[string]harness.Start{
		"http": func(addr string) (net.Addr, error) { return harness.Listen(addr, server.Serve) },
		"https": func(addr string) (net.Addr, error) {
			config := harness.TLSConfig()
			return harness.Listen(addr,
				func(ln net.Listener) error { return server.Serve(tls.NewListener(ln, config)) })
		},
		"h2": func(addr string) (net.Addr, error) {
			server.Protocols = harness.ClearHTTP2()
			return harness.Listen(addr, server.Serve)
		},
		"h2s": func(addr string) (net.Addr, error) {
			server.TLSConfig = harness.TLSConfig("h2")
			return harness.Listen(addr, func(ln net.Listener) error { return server.ServeTLS(ln, "", "") })
		},
		"exposed": func(addr string) (net.Addr, error) {
			return harness.Listen(addr,
				(&http.Server{Handler: harness.Exposed(), ErrorLog: log.New(io.Discard, "", 0)}).Serve)
		},
		"h2-exposed": func(addr string) (net.Addr, error) {
			return harness.Listen(addr, (&http.Server{Handler: harness.Exposed(), Protocols: harness.ClearHTTP2(),
				ErrorLog: log.New(io.Discard, "", 0)}).Serve)
		},
		"push-sse": events,
	})
}
