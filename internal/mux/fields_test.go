package mux

import (
	"fmt"
	"slices"
	"testing"

	"github.com/myriad-go/myriad/internal/h2"
)

// A client drops what a response has of a connection of HTTP/1, and says so once; the response goes
// on. Kept, a proxy would send it on.
func TestFieldsOfAConnectionAreDropped(t *testing.T) {
	cfg, lines := logged(Config{Client: true})
	r := newRig(t, cfg)
	r.greet()
	r.request(true)
	r.want("HEADERS 1 ")
	var got string
	r.on = func(_ *testStream, h *h2.Head, _ bool) { got += fmt.Sprintln(h.Status, h.Fields) }
	r.write(headers(1, block(":status", "103", "link", "l", "keep-alive", "x"), false),
		headers(1, block(":status", "200", "connection", "close", "a", "b", "transfer-encoding", "chunked"), false),
		data(1, "body", false), headers(1, block("upgrade", "h2c", "sum", "1"), true))
	r.wantLog("1 head 103  last false", "1 head 200  last false", "1 trailers [{sum 1 false}]",
		"1 ended NO_ERROR, error false")
	if want := "103 [{link l false}]\n200 [{a b false}]\n"; got != want {
		t.Errorf("the owner has seen\n%swant\n%s", got, want)
	}
	const want = "HTTP/2 with peer, stream 1: fields of a connection of HTTP/1 in a response are dropped: keep-alive"
	if !slices.Equal(*lines, []string{want}) {
		t.Errorf("logged %q, want %q", *lines, want)
	}
	if n := r.cfg.Counters.Resets.Load(); n != 0 {
		t.Errorf("%d streams were reset", n)
	}
}

// Values have no spaces and tabs at their ends, in both roles, in heads and in trailers.
func TestValuesAreTrimmed(t *testing.T) {
	for _, client := range []bool{false, true} {
		r := newRig(t, Config{Client: client})
		r.greet()
		head := block(":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/", "a", " \tb c\t ", "d", "  ")
		if client {
			r.request(true)
			r.want("HEADERS 1 ")
			head = block(":status", "200", "a", " \tb c\t ", "d", "  ")
		}
		var got string
		r.on = func(_ *testStream, h *h2.Head, _ bool) { got = fmt.Sprint(h.Fields) }
		r.write(headers(1, head, false), headers(1, block("e", "f "), true))
		r.settle()
		if want := "[{a b c false} {d  false}]"; got != want {
			t.Errorf("client %v: the owner has seen %s, want %s", client, got, want)
		}
		if want := "1 trailers [{e f false}]"; !slices.Contains(r.log, want) {
			t.Errorf("client %v: %q, want %s", client, r.log, want)
		}
		r.wantNothing()
	}
}
