package push_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/pushtest"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
	"github.com/myriad-go/myriad/server/push/membus"
)

// Shutdown is bounded by its context also while a bus does not take a publication. Clients are
// disconnected, and new publications refused at once.
func TestShutdownBesideABusThatWaits(t *testing.T) {
	bus := pushtest.WaitingBus{Bus: membus.New(membus.Config{}), Waits: make(chan struct{})}
	ts := servertest.New(t, push.Config{Bus: bus})
	stream := ts.Events("channel=news")
	answer := make(chan *httptest.ResponseRecorder)
	go func() { answer <- ts.Do("POST", "/api/publish", `{"channel":"news","data":1}`) }()
	<-bus.Waits
	ctx, cancel := context.WithCancel(t.Context())
	drained := make(chan error)
	go func() { drained <- ts.Hub.Drain(ctx) }()
	pushtest.WaitFor(t, "the server to drain", ts.Hub.IsDraining)
	if w := ts.Do("POST", "/api/publish", `{"channel":"news","data":2}`); w.Code != 503 {
		t.Errorf("another publication meanwhile: %d %s", w.Code, w.Body)
	}
	cancel()
	if err := <-drained; err != context.Canceled {
		t.Errorf("refuse: %v", err)
	}
	if err := ts.Shutdown(ctx); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("Shutdown: %v", err)
	}
	if !stream.IsClosed() {
		t.Error("a client is still connected")
	}
	ts.Clock.Advance(15 * time.Second)
	<-answer
}
