// Command clientstd sends requests with net/http.
package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/myriad-go/myriad/bench/servers/harness/origin"
)

var series = flag.Bool("series", false, "one request after the other")

func main() {
	origin.Main()
	addr, err := origin.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	url := func(d time.Duration) string { return origin.URL(addr, d) }
	work := harness.Clients(open, url)
	harness.MainWith(nil, map[string]harness.Work{"client": func(o harness.Order) (harness.Report, error) {
		if *series {
			o.Capacity = 1
		}
		return work(o)
	}})
}

func open(o harness.Order) (harness.Fetch, func(), error) {
	t := &http.Transport{MaxIdleConnsPerHost: o.Capacity, DisableCompression: true}
	fetch := func(url string) error {
		req, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		r, err := t.RoundTrip(req)
		if err != nil {
			return err
		}
		defer r.Body.Close()
		n, err := io.Copy(io.Discard, r.Body)
		if err == nil && (r.StatusCode != http.StatusOK || n != int64(len(harness.Answer))) {
			err = fmt.Errorf("status %d, %d bytes", r.StatusCode, n)
		}
		return err
	}
	return fetch, t.CloseIdleConnections, nil
}
