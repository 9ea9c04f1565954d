package push_test

import (
	"regexp"
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

// Probes and metrics say how late the loops are.
func TestLatenessIsShown(t *testing.T) {
	e, err := myriad.Start(myriad.Config{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Shutdown(t.Context())
	ts := servertest.New(t, push.Config{Engine: e})
	if w := ts.Do("GET", "/health", ""); w.Code != 200 ||
		!regexp.MustCompile(`^{"late_us":\d+,"tasks_late_us":\d+,"newcomers_waiting":0}$`).Match(w.Body.Bytes()) {
		t.Errorf("health: %d %s", w.Code, w.Body)
	}
	page := ts.Do("GET", "/metrics", "").Body.String()
	for _, line := range []string{"myriad_loops_late_seconds ", "myriad_loops_late 0\n",
		"myriad_tasks_late_seconds 0\n", "myriad_newcomers_waited_total 0\n", "myriad_newcomers_waiting_seconds 0\n",
		"myriad_pings_late_seconds_count 0\n",
		"myriad_sessions_ended_total{reason=\"no pong\"} 0\n"} {
		if !strings.Contains(page, "\n"+line) {
			t.Errorf("the page has no line %q", line)
		}
	}
	lint(t, page)
}
