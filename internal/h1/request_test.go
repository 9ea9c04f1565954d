package h1

import (
	"fmt"
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
