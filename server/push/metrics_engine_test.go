package push_test

import (
	"strings"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/server/push"
	"github.com/myriad-go/myriad/server/push/internal/servertest"
)

// counted is a value of Engine.Shared that has figures.
type counted struct{}

func (counted) Figures() myriad.Figures {
	return myriad.Figures{Title: "web: HTTP/2", Counts: []myriad.Count{{Name: "streams refused", Count: 3}}}
}

// The metrics have what packages count on the engine.
func TestEngineFiguresInMetrics(t *testing.T) {
	e, err := myriad.Start(myriad.Config{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Shutdown(t.Context())
	e.Shared(counted{}, func() any { return counted{} })
	page := servertest.New(t, push.Config{Engine: e}).Do("GET", "/metrics", "").Body.String()
	if !strings.Contains(page, "\nmyriad_engine_figures{name=\"streams refused\",of=\"web: HTTP/2\"} 3\n") {
		t.Errorf("no figures of the engine in %s", page)
	}
	lint(t, page)
}
