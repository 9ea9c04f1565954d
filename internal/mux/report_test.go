package mux

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/h2"
)

// logged has a Config write its faults to a list, without the peer's address.
func logged(cfg Config) (Config, *[]string) {
	lines := new([]string)
	cfg.Log = NewLog(func(f Fault) {
		*lines = append(*lines, strings.Replace(f.String(), f.Remote.String(), "peer", 1))
	})
	return cfg, lines
}

// An error of a stream and one of the connection are a line each, with the peer, the code and the
// reason.
func TestFaultsAreLogged(t *testing.T) {
	cfg, lines := logged(Config{})
	r := newRig(t, cfg)
	r.greet()
	r.write(headers(1, get("connection", "close"), true))
	r.want("RST_STREAM 1 PROTOCOL_ERROR")
	r.write(h2.AppendWindowUpdate(nil, 0, 0))
	r.want("GOAWAY 1 PROTOCOL_ERROR")
	want := []string{
		"HTTP/2 with peer, stream 1: PROTOCOL_ERROR: a field belongs to a connection of HTTP/1: connection",
		"HTTP/2 with peer: PROTOCOL_ERROR: WINDOW_UPDATE with an increment of 0",
	}
	if !slices.Equal(*lines, want) {
		t.Errorf("logged\n\t%s\nwant\n\t%s", strings.Join(*lines, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// Connections that end in order, by their streams' resets or by the peer's, log nothing.
func TestOrderlyEndsAreNotLogged(t *testing.T) {
	cfg, lines := logged(Config{})
	r := newRig(t, cfg)
	r.greet()
	r.write(headers(1, getBlock, false), h2.AppendReset(nil, 1, h2.Cancel), headers(3, getBlock, false))
	r.settle()
	r.conn.streams[1].Release()
	r.conn.streams[3].Cancel(h2.Cancel)
	r.conn.streams[3].Release()
	r.settle()
	r.onLoop(r.conn.Shutdown)
	r.RunFor(time.Minute)
	if !r.conn.gone || len(*lines) > 0 {
		t.Errorf("gone %v, logged %q", r.conn.gone, *lines)
	}
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
