package mux

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// logged has a Config write its faults to a list, without the peer's address.
func logged(cfg Config) (Config, *[]string) {
	lines := new([]string)
	cfg.Log = NewLog(func(f Fault) {
		*lines = append(*lines, strings.Replace(f.String(), f.Remote.String(), "peer", 1))
	})
	return cfg, lines
}

// A peer that does the same wrong again and again is a line in ten seconds, which says how often.
// It does not hide a fault of another kind.
func TestFaultsAreLoggedOnceInAPeriod(t *testing.T) {
	cfg, lines := logged(Config{})
	r := newRig(t, cfg)
	r.greet()
	for i := range 20 {
		r.write(headers(id(i), get("connection", "close"), true))
		r.RunFor(1100 * time.Millisecond)
	}
	r.write(headers(id(20), getBlock, true), data(id(20), "a", false))
	r.settle()
	got := ""
	for _, line := range *lines {
		var stream int
		var code string
		if _, err := fmt.Sscanf(line, "HTTP/2 with peer, stream %d: %s", &stream, &code); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		_, more, _ := strings.Cut(line, " (and ")
		got += fmt.Sprintln(stream, code, more)
	}
	if want := "1 PROTOCOL_ERROR: \n21 PROTOCOL_ERROR: 9 more)\n41 STREAM_CLOSED: \n"; got != want {
		t.Errorf("logged\n%swant\n%s", got, want)
	}
}
