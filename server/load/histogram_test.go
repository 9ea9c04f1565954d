package load

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"
)

// A histogram survives both forms of its JSON.
func TestHistogramsSurviveJSON(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 1000} {
		for _, sparse := range []bool{false, true} {
			h := NewHistogram()
			h.sparse = sparse
			h.Record(0, int64(n))
			for range n {
				h.Record(time.Duration(random.Int64N(int64(2*longest))), 1+random.Int64N(5))
			}
			text, err := json.Marshal(h)
			if err != nil {
				t.Fatal(err)
			}
			back := NewHistogram()
			back.Record(time.Second, 7) // it is overwritten
			if err := json.Unmarshal(text, back); err != nil {
				t.Fatal(err)
			}
			if back.Count() != h.Count() || back.Max() != h.Max() {
				t.Errorf("%d counts, sparse: %t: %d and %s became %d and %s", n, sparse, h.Count(), h.Max(),
					back.Count(), back.Max())
			}
			for q := range 100 {
				if a, b := h.Quantile(float64(q)/100), back.Quantile(float64(q)/100); a != b {
					t.Errorf("%d counts, sparse: %t: p%d became %s instead of %s", n, sparse, q, b, a)
				}
			}
		}
	}
}

// A list that is no histogram is refused, and takes no more memory than one.
func TestListsThatAreNoHistogram(t *testing.T) {
	for _, text := range []string{"[1]", "[0,0]", "[0,-1]", "[-1,1]", "[1000000000,1]", "[9223372036854775807,1]",
		"[0,1,9223372036854775807,1]", `["a"]`, "[0.5,1]", "[0,1"} {
		var h Histogram
		if err := json.Unmarshal([]byte(text), &h); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}
