package load

import (
	"testing"
	"time"
)

func TestParseBusy(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"cpu  100 10 50 900 5 1 2 3 40 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n": 1660 * time.Millisecond,
		"":                              0,
		"cpu 1 2 3":                     0,
		"intr 1 2 3 4 5 6 7 8 9 10":     0,
		"cpu 1 2 3 4 5 6 7 x 9 10 11\n": 0,
	} {
		if got := parseBusy([]byte(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if u := readUsage(1); u.Usable != 1 || u.Processors < 1 || u.Busy <= 0 || u.CPU <= 0 {
		t.Errorf("this process: %+v", u)
	}
}
