// Command clientfast sends requests with fasthttp's client.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/myriad-go/myriad/bench/servers/harness/origin"
)

func main() {
	origin.Main()
	addr, err := origin.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	url := func(d time.Duration) string { return origin.URL(addr, d) }
	harness.MainWith(nil, map[string]harness.Work{"client": harness.Clients(open, url)})
}

func open(o harness.Order) (harness.Fetch, func(), error) {
	c := &fasthttp.Client{MaxConnsPerHost: o.Capacity}
	fetch := func(url string) error {
		req, res := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
		defer fasthttp.ReleaseRequest(req)
		defer fasthttp.ReleaseResponse(res)
		req.SetRequestURI(url)
		if err := c.Do(req, res); err != nil {
			return err
		}
		if res.StatusCode() != fasthttp.StatusOK || len(res.Body()) != len(harness.Answer) {
			return fmt.Errorf("status %d, %d bytes", res.StatusCode(), len(res.Body()))
		}
		return nil
	}
	return fetch, c.CloseIdleConnections, nil
}
