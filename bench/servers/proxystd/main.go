// Command proxystd is httputil.ReverseProxy on net/http, server and client.
package main

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/myriad-go/myriad/bench/servers/harness/origin"
)

func main() {
	origin.Main()
	harness.Main(map[string]harness.Start{"proxy": func(addr string) (net.Addr, error) {
		back, err := origin.Start()
		if err != nil {
			return nil, err
		}
		p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: back})
		p.Transport = &http.Transport{MaxIdleConnsPerHost: 1000}
		return harness.Listen(addr, func(ln net.Listener) error { return (&http.Server{Handler: p}).Serve(ln) })
	}})
}
