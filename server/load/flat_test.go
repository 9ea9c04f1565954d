package load

import (
	"net/http"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/soak"
)

// However long a load runs, the objects that it and its server keep do not become more.
// MYRIAD_LOAD_SOAK=1h makes it run for so long at least, and up to an hour.
func TestMemoryStaysFlat(t *testing.T) {
	conns := soak.Size(t, 50, 9500) // both ends have descriptors of this process
	between := soak.Size[int64](t, 1000, 20_000)
	long, err := time.ParseDuration(os.Getenv("MYRIAD_LOAD_SOAK"))
	if err != nil && os.Getenv("MYRIAD_LOAD_SOAK") != "" {
		t.Fatal(err)
	}
	at := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	const looks = 10
	var objects []uint64
	next, began := between, time.Now()
	r := run(t, Plan{Kind: HTTP, URL: at, Connections: conns, Opening: 64}, Options{}, func(s *Sample) bool {
		if s.Requests < next {
			return false
		}
		next = s.Requests + between
		objects = append(objects, liveObjects())
		return len(objects) >= looks && time.Since(began) >= long
	})
	if r.Open != conns || r.Failures() > 0 {
		t.Errorf("%d of %d connections, %d errors: %s", r.Open, conns, r.Failures(), r.Total.reasons())
	}
	if len(objects) < looks {
		t.Fatalf("only %d looks", len(objects))
	}
	t.Logf("%d requests over %d connections; objects: %d", r.Total.Requests, conns, objects)
	// What is under way comes and goes, so the least of each half counts. An object for each
	// request would show.
	early, late := slices.Min(objects[:looks/2]), slices.Min(objects[looks/2:])
	if allowed := early + 20*uint64(conns) + uint64(between); late > allowed {
		t.Errorf("%d objects were alive at first, %d later, at most %d are allowed", early, late, allowed)
	}
}

func liveObjects() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapObjects
}
