// Command clientloop sends requests with package client: by callbacks on the loops, or with
// --roundtrip from goroutines, as an http.RoundTripper.
package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/myriad-go/myriad/bench/servers/harness/origin"
	"github.com/myriad-go/myriad/client"
)

var roundTrip = flag.Bool("roundtrip", false, "goroutines that wait")

func main() {
	origin.Main()
	addr, err := origin.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	url := func(d time.Duration) string { return origin.URL(addr, d) }
	waiting := harness.Clients(open, url)
	harness.MainWith(nil, map[string]harness.Work{"client": func(o harness.Order) (harness.Report, error) {
		if *roundTrip {
			return waiting(o)
		}
		return callbacks(o, url(o.Sleep))
	}})
}

func transport(o harness.Order) *client.Transport {
	return &client.Transport{MaxIdleConnsPerHost: o.Capacity, DisableCompression: true}
}

func open(o harness.Order) (harness.Fetch, func(), error) {
	t := transport(o)
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

// A crowd is requests that follow each other: the end of one begins the next.
type crowd struct {
	t    *client.Transport
	url  string
	left atomic.Int64 // not begun
	open atomic.Int64 // not ended
	done atomic.Int64
	err  atomic.Pointer[error]
	over chan struct{}
}

func callbacks(o harness.Order, url string) (harness.Report, error) {
	c := &crowd{t: transport(o), url: url, over: make(chan struct{})}
	defer c.t.CloseIdleConnections()
	c.left.Store(int64(o.Times))
	c.open.Store(int64(o.Times))
	watch := harness.Goroutines()
	for range min(o.Capacity, o.Times) {
		c.next()
	}
	<-c.over
	r := harness.Report{Done: int(c.done.Load()), Goroutines: watch()}
	if err := c.err.Load(); err != nil {
		return r, fmt.Errorf("%d requests of %d succeeded: %w", r.Done, o.Times, *err)
	}
	return r, nil
}

func (c *crowd) next() {
	if c.left.Add(-1) < 0 {
		return
	}
	req, err := http.NewRequest(http.MethodGet, c.url, nil)
	if err != nil {
		c.end(err)
		return
	}
	c.t.Do(req, func(r *http.Response, err error) {
		if err != nil {
			c.end(err)
			return
		}
		n := 0
		err = client.OnBody(r, func(p []byte, err error) {
			if n += len(p); err == nil {
				return
			}
			_ = r.Body.Close()
			if err == io.EOF && (r.StatusCode != http.StatusOK || n != len(harness.Answer)) {
				err = fmt.Errorf("status %d, %d bytes", r.StatusCode, n)
			}
			if err == io.EOF {
				err = nil
			}
			c.end(err)
		})
		if err != nil {
			c.end(err)
		}
	})
}

func (c *crowd) end(err error) {
	if err != nil {
		c.err.Store(&err)
	} else {
		c.done.Add(1)
	}
	if c.open.Add(-1) == 0 {
		close(c.over)
		return
	}
	c.next()
}
