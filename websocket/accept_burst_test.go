package websocket

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/myriad-go/myriad"
)

// Upgrades on net/http that come faster than the loop takes them wait. None is refused.
func TestAcceptLosesNoneOfABurst(t *testing.T) {
	const intake, all = 1024, 1100
	e := startEngine(t, myriad.Config{Loops: 1})
	o := &Options{Engine: e, Workers: startPool(t)}
	var entered, taken sync.WaitGroup
	entered.Add(all)
	taken.Add(intake)
	var returned atomic.Int64
	results := make(chan error, all)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered.Done()
		_, err := Accept(w, r, o)
		results <- err
		if returned.Add(1) <= intake {
			taken.Done()
		}
	}))
	defer s.Close()
	held, release := make(chan struct{}), make(chan struct{})
	must(t, e.Loops()[0].Do(func() { close(held); <-release }))
	<-held
	for range all {
		nc, err := net.Dial("tcp", s.Listener.Addr().String())
		must(t, err)
		defer nc.Close()
		if _, err := io.WriteString(nc, sampleRequest); err != nil {
			t.Fatal(err)
		}
	}
	entered.Wait()
	taken.Wait()
	close(release)
	for range all {
		must(t, <-results)
	}
}
