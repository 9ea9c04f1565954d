// Command proxyweb is httputil.ReverseProxy on packages web and client.
package main

import (
	"net"
	"net/http/httputil"
	"net/url"

	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/myriad-go/myriad/bench/servers/harness/origin"
	"github.com/myriad-go/myriad/client"
	"github.com/myriad-go/myriad/web"
)

func main() {
	origin.Main()
	harness.Main(map[string]harness.Start{"proxy": func(addr string) (net.Addr, error) {
		back, err := origin.Start()
		if err != nil {
			return nil, err
		}
		p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: back})
		p.Transport = &client.Transport{MaxIdleConnsPerHost: 1000}
		ln, err := (&web.Server{Handler: p}).Listen("tcp", addr)
		if err != nil {
			return nil, err
		}
		return ln.Addr(), nil
	}})
}
