package h1

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

const hostLine = "Host: a\r\n"

// get puts field lines into an otherwise good request.
func get(fields string) string { return "GET / HTTP/1.1\r\n" + hostLine + fields + "\r\n" }

func describe(h *Head) string {
	s := fmt.Sprintf("%q %q host=%q form=%d %+v expect=%t/%t", h.Method, h.Target, h.Host, h.Form, h.Framing,
		h.Expect100, h.ExpectNot)
	for _, f := range h.Fields {
		s += fmt.Sprintf(" %q=%q", f.Name, f.Value)
	}
	return s
}

func TestParseRequestFields(t *testing.T) {
	in := "GET / HTTP/1.1\r\nhost:a\r\nX-Empty:\r\nX-Blank: \t \r\nx-y_z!: \t a b\tc \t\r\nX-High: \xff\xfe\r\n" +
		"X-Empty: again\r\n\r\n"
	want := [][2]string{{"host", "a"}, {"X-Empty", ""}, {"X-Blank", ""}, {"x-y_z!", "a b\tc"}, {"X-High", "\xff\xfe"},
		{"X-Empty", "again"}}
	var h Head
	if n, err := ParseRequest([]byte(in), Limits{}, &h); n != len(in) || err != nil {
		t.Fatal(n, err)
	}
	if len(h.Fields) != len(want) {
		t.Fatalf("got %d fields, want %d", len(h.Fields), len(want))
	}
	for i, f := range h.Fields {
		if got := [2]string{string(f.Name), string(f.Value)}; got != want[i] {
			t.Errorf("field %d is %q, want %q", i, got, want[i])
		}
	}
	h.Reset()
	if f := h.Fields[:1][0]; f.Name != nil || h.Method != nil {
		t.Error("Reset left a view of the input")
	}
}

func TestParseRequestLimits(t *testing.T) {
	head := get("X: y\r\n")
	line := len("GET / HTTP/1.1")
	tests := []struct {
		name, in string
		lim      Limits
		want     *Error
	}{
		{"head just fits", head, Limits{HeadBytes: len(head)}, nil},
		{"head a byte too long", head, Limits{HeadBytes: len(head) - 1}, errHeadLong},
		{"head too long before its end has come", head[:30], Limits{HeadBytes: 30}, errHeadLong},
		{"line just fits", head, Limits{LineBytes: line}, nil},
		{"line a byte too long", head, Limits{LineBytes: line - 1}, errLineLong},
		{"line too long before its end has come", "GET /" + strings.Repeat("a", 95), Limits{LineBytes: 98},
			errLineLong},
		{"line longer than the whole head may be", "GET /aaaaaaa", Limits{HeadBytes: 12}, errLineLong},
		{"method too long", strings.Repeat("a", 100), Limits{LineBytes: 98}, errMethodLong},
		{"line with bare LF just fits", "CONNECT / HTTP/1.0\n\n", Limits{LineBytes: 18}, nil},
		{"line with bare LF a byte too long", "CONNECT / HTTP/1.0\n\n", Limits{LineBytes: 17}, errLineLong},
		{"head with bare LF a byte too long", "CONNECT / HTTP/1.0\n\n", Limits{HeadBytes: 19}, errLineLong},
		{"fields just fit", head, Limits{Fields: 2}, nil},
		{"a field too many", head, Limits{Fields: 1}, errFieldsMany},
		{"defaults hold", get("X: " + strings.Repeat("y", DefaultHeadBytes)), Limits{}, errHeadLong},
		{"default fields hold", get(strings.Repeat("X: y\r\n", DefaultFields)), Limits{}, errFieldsMany},
		{"largest numbers", head, Limits{math.MaxInt, math.MaxInt, math.MaxInt}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var h Head
			n, err := ParseRequest([]byte(tt.in), tt.lim, &h)
			if tt.want == nil && (n != len(tt.in) || err != nil) || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("ParseRequest = %d, %v; want %v", n, err, tt.want)
			}
		})
	}
}

// Errors come with the byte that makes them certain, or with the end of their line at the latest.
func TestErrorsDoNotWaitForTheEnd(t *testing.T) {
	for _, in := range []string{"GET / HTTP/1.1\n", "GET / HTTP/3.0\r\n", "G@T / HTTP/1.1\r\n",
		"GET / HTTP/1.1\r\nX Y: a\r\n",
		"GET / HTTP/1.1\r\nX: \x00", "GET / HTTP/1.1\r\nX: a\rb", "PRI * HTTP/2.0\r\n",
		"GET / HTTP/1.1\r\nContent-Length: x\r\n"} {
		var h Head
		if n, err := ParseRequest([]byte(in), Limits{}, &h); err == nil {
			t.Errorf("ParseRequest(%q) = %d, want an error", in, n)
		}
		if n, err := ParseRequest([]byte(in[:len(in)-1]), Limits{}, &h); n != 0 || err != nil {
			t.Errorf("ParseRequest(%q) = %d, %v; want more", in[:len(in)-1], n, err)
		}
	}
}

func TestEmptyLines(t *testing.T) {
	for in, want := range map[string]int{"": 0, "\r": 0, "\r\n": 2, "\r\n\r": 2, "\r\n\r\nGET": 4, "\n": 0,
		"G\r\n": 0} {
		if got := EmptyLines([]byte(in)); got != want {
			t.Errorf("EmptyLines(%q) = %d, want %d", in, got, want)
		}
	}
}

func TestParseDoesNotAllocate(t *testing.T) {
	var h Head
	for name, in := range map[string]string{"small": smallRequest, "browser": browserRequest} {
		p := []byte(in)
		parse := func() {
			if n, err := ParseRequest(p, Limits{}, &h); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
		}
		parse() // grows h.Fields once
		if allocs := testing.AllocsPerRun(100, parse); allocs != 0 {
			t.Errorf("%s request: %v allocations, want 0", name, allocs)
		}
	}
}
