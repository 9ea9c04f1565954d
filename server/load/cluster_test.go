package load

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/doors"
)

// Two servers that do not know each other stand at the addresses. Half of the subscribers are at
// each, but for the turn that the publisher takes and for those that had to connect again on a busy
// machine. All are pinged, and a publication misses those at the other server.
func TestConnectionsTakeTurnsAtAddresses(t *testing.T) {
	t.Parallel()
	var opened [2]atomic.Int64
	p := Plan{Kind: Push, Connections: 20, Rate: 1e-3, Timeout: 3 * time.Second}
	for i := range opened {
		s, err := push.New(push.Config{Doors: doors.All(doors.Config{}), Timing: push.Timing{Ping: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Shutdown(context.WithoutCancel(t.Context())) })
		p.URL = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "" {
				opened[i].Add(1)
			}
			s.ServeHTTP(w, r)
		}))
		p.Addresses = append(p.Addresses, strings.TrimPrefix(p.URL, "http://"))
	}
	r := run(t, p, Options{}, func(s *Sample) bool { return s.Push.Pinged >= 20 })
	a, b := opened[0].Load(), opened[1].Load()
	if p := r.Total.Push; p.Pinged != 20 || p.Missing+p.Deliveries != 20*r.Total.Requests || p.Missing == 0 ||
		p.Deliveries == 0 || a < 9 || b < 9 {
		t.Errorf("%d subscribers were pinged; of %d publications %d copies came and %d were missed; the servers "+
			"have had %d and %d connections", p.Pinged, r.Total.Requests, p.Deliveries, p.Missing, a, b)
	}
}

func TestGuardLooksAtAddresses(t *testing.T) {
	t.Parallel()
	p := Plan{Kind: HTTP, URL: "http://127.0.0.1/", Addresses: []string{"127.0.0.1:1", "192.0.2.1:80"}}
	if err := Guard(t.Context(), p); err == nil || !strings.Contains(err.Error(), "192.0.2.1") {
		t.Errorf("the error was %v", err)
	}
	if p.Addresses = p.Addresses[:1]; Guard(t.Context(), p) != nil {
		t.Error("addresses of this machine were refused")
	}
}
