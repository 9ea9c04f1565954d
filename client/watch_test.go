package client

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"
)

// lateContext calls f when it is asked for its deadline.
type lateContext struct {
	context.Context
	f func()
}

func (c lateContext) Deadline() (time.Time, bool) {
	c.f()
	return c.Context.Deadline()
}

// A context may end while the call begins to be watched for Request.Cancel. Then no entry for
// CancelRequest is left, which would keep the request. Nor is a goroutine that waits for Cancel:
// TestMain would count it.
func TestContextEndsBesideRequestCancel(t *testing.T) {
	for _, bounded := range []bool{false, true} {
		tr := fresh(t, &Transport{})
		parent, cancel := context.WithCancel(t.Context())
		if bounded {
			parent, cancel = context.WithTimeout(t.Context(), time.Hour)
		}
		over := make(chan error, 1)
		asked := false
		req, err := http.NewRequestWithContext(lateContext{parent, func() {
			if !asked {
				asked = true
				cancel()
				if err := <-over; !errors.Is(err, context.Canceled) {
					t.Errorf("the call ended with %v", err)
				}
			}
		}}, "GET", "http://127.0.0.1:1/", nil)
		if err != nil {
			t.Fatal(err)
		}
		//lint:ignore SA1019 deprecated, and what http.Client sets for its Timeout
		req.Cancel = make(chan struct{})
		asked = false
		tr.Do(req, func(_ *http.Response, err error) { over <- err })
		if !asked {
			t.Error("the context was not asked for its deadline where the test needs that")
		}
		tr.mu.Lock()
		if n := len(tr.cancels); n != 0 {
			t.Errorf("%d requests are noted for CancelRequest", n)
		}
		tr.mu.Unlock()
	}
}
