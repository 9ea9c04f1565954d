package push

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/membus"
)

// Publications race with the end: each either runs and is waited for, or is refused.
func TestGate(t *testing.T) {
	for range 200 {
		var g gate
		var over atomic.Bool
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for g.enter() {
					if over.Load() {
						t.Error("a publication runs when wait has returned")
					}
					g.leave()
				}
			})
		}
		g.shut()
		for range 2 { // a second call waits, too
			if err := g.wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
		over.Store(true)
		wg.Wait()
	}
}

// Shutdown is bounded by its context also while a bus does not take a publication. Clients are
// disconnected, and new publications refused at once.
func TestShutdownBesideABusThatWaits(t *testing.T) {
	bus := waitsToPublish{membus.New(membus.Config{}), make(chan struct{})}
	ts := newTestServer(t, Config{Bus: bus})
	stream := ts.subscribe("channel=news")
	answer := make(chan *httptest.ResponseRecorder)
	go func() { answer <- ts.do("POST", "/api/publish", `{"channel":"news","data":1}`) }()
	<-bus.waits
	ctx, cancel := context.WithCancel(t.Context())
	drained := make(chan error)
	go func() { drained <- ts.hub.Refuse(ctx) }()
	waitFor(t, "the server to drain", ts.hub.IsDraining)
	if w := ts.do("POST", "/api/publish", `{"channel":"news","data":2}`); w.Code != 503 {
		t.Errorf("another publication meanwhile: %d %s", w.Code, w.Body)
	}
	cancel()
	if err := <-drained; err != context.Canceled {
		t.Errorf("refuse: %v", err)
	}
	if err := ts.Shutdown(ctx); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("Shutdown: %v", err)
	}
	if !stream.isClosed() {
		t.Error("a client is still connected")
	}
	ts.clock.advance(15 * time.Second)
	<-answer
}
