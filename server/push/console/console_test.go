package console

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/myriad-go/myriad/server/push/hub"

	"github.com/myriad-go/myriad/internal/leaktest"
	"github.com/myriad-go/myriad/server/push"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// The paths of the console are there unless it is disabled; that which removes a node always is,
// and says that there is no cluster.
func TestPaths(t *testing.T) {
	for _, disabled := range []bool{false, true} {
		s, err := push.New(push.Config{DisableConsole: disabled, Doors: []hub.Door{New()}})
		if err != nil {
			t.Fatal(err)
		}
		status := func(method, path string) int {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(method, path, nil))
			return w.Code
		}
		want := map[bool]int{false: 200, true: 404}[disabled]
		for _, path := range []string{"/", "/console/console.js", "/console/stats", "/console/channels",
			"/console/connections", "/console/namespaces", "/console/refusals", "/console/cluster"} {
			if got := status("GET", path); got != want {
				t.Errorf("%s: %d, want %d (disabled: %t)", path, got, want, disabled)
			}
		}
		if got := status("POST", "/cluster/remove?node=a"); got != 404 {
			t.Errorf("/cluster/remove: %d", got)
		}
		if got := status("GET", "/cluster/remove?node=a"); got != 405 {
			t.Errorf("GET /cluster/remove: %d", got)
		}
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
