package h2

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/internal/hpack"
)

// fields are given as lines: "name: value", a pseudo-field with its colon first.
func fields(lines string) (all []hpack.Field) {
	for line := range strings.SplitSeq(lines, "|") {
		if line == "" {
			continue
		}
		i := strings.Index(line[1:], ":") + 1
		all = append(all, hpack.Field{Name: line[:i], Value: strings.Replace(line[i+1:], " ", "", 1)})
	}
	return all
}

const get = ":method: GET|:scheme: https|:authority: h|:path: /|"

func TestRequestRules(t *testing.T) {
	for _, tt := range []struct{ name, lines, want string }{
		{"plain", get, "GET https h / -1 []"},
		{"fields", get + "accept: a|x: y", "GET https h / -1 [accept=a x=y]"},
		{"no authority", ":method: GET|:scheme: http|:path: /", "GET http  / -1 []"},
		{"Host alone (8.3.1)", ":method: GET|:scheme: http|:path: /|host: h", "GET http h / -1 []"},
		{"Host equals (8.3.1)", get + "host: H", "GET https h / -1 []"},
		{"Host differs (8.3.1)", get + "host: i", ""},
		{"Host twice", ":method: GET|:scheme: http|:path: /|host: h|host: h", ""},
		{"userinfo (8.3.1)", ":method: GET|:scheme: http|:authority: u@h|:path: /", ""},
		{"cookies (8.2.3)", get + "cookie: a=1|x: y|cookie: b=2|cookie: c=3",
			"GET https h / -1 [cookie=a=1; b=2; c=3 x=y]"},
		{"length", get + "content-length: 12", "GET https h / 12 [content-length=12]"},
		{"the same length twice", get + "content-length: 12|content-length: 12",
			"GET https h / 12 [content-length=12]"},
		{"two lengths (8.1.1)", get + "content-length: 12|content-length: 13", ""},
		{"a length with a sign", get + "content-length: +12", ""},
		{"a negative length", get + "content-length: -1", ""},
		{"a length that is too large", get + "content-length: 9223372036854775808", ""},
		{"no length", get + "content-length: ", ""},
		{"TE trailers (8.2.2)", get + "te: trailers", "GET https h / -1 [te=trailers]"},
		{"TE else (8.2.2)", get + "te: gzip", ""},
		{"TE trailers and else (8.2.2)", get + "te: trailers, gzip", ""},
		{"TE of nothing", get + "te: ", "GET https h / -1 [te=]"},
		{"Connection (8.2.2)", get + "connection: close", ""},
		{"Keep-Alive (8.2.2)", get + "keep-alive: a", ""},
		{"Proxy-Connection (8.2.2)", get + "proxy-connection: a", ""},
		{"Transfer-Encoding (8.2.2)", get + "transfer-encoding: chunked", ""},
		{"Upgrade (8.2.2)", get + "upgrade: a", ""},
		{"upper case (8.2)", get + "X-Y: z", ""},
		{"a space in a name (8.2.1)", get + "x y: z", ""},
		{"a byte above 127 in a name (8.2.1)", get + "x\x80: z", ""},
		{"NUL in a value (8.2.1)", get + "x: a\x00b", ""},
		{"CR in a value (8.2.1)", get + "x: a\rb", ""},
		{"LF in a value (8.2.1)", get + "x: a\nb", ""},
		{"a byte above 127 in a value", get + "x: \xff", "GET https h / -1 [x=\xff]"},
		{"no method (8.3.1)", ":scheme: https|:authority: h|:path: /", ""},
		{"a method with a space", ":method: G T|:scheme: https|:authority: h|:path: /", ""},
		{"no scheme (8.3.1)", ":method: GET|:authority: h|:path: /", ""},
		{"no path (8.3.1)", ":method: GET|:scheme: https|:authority: h", ""},
		{"an empty path (8.3.1)", ":method: GET|:scheme: https|:authority: h|:path: ", ""},
		{"a path without a slash (8.3.1)", ":method: GET|:scheme: https|:authority: h|:path: a", ""},
		{"a space in a path", ":method: GET|:scheme: https|:authority: h|:path: /a b", ""},
		{"* for OPTIONS (8.3.1)", ":method: OPTIONS|:scheme: https|:authority: h|:path: *", "OPTIONS https h * -1 []"},
		{"* for GET (8.3.1)", ":method: GET|:scheme: https|:authority: h|:path: *", ""},
		{"twice the same (8.3)", get + ":path: /", ""},
		{"twice, of which one is empty (8.3)", ":method: GET|:scheme: https|:authority: |:authority: h|:path: /", ""},
		{"an empty authority twice (8.3)", ":method: GET|:scheme: https|:authority: |:authority: |:path: /", ""},
		{"Host twice, of which one is empty", ":method: GET|:scheme: https|:path: /|host: |host: h", ""},
		{"Host beside an empty authority", ":method: GET|:scheme: https|:authority: |:path: /|host: h",
			"GET https h / -1 []"},
		{"an empty Host beside an authority (8.3.1)", get + "host: ", ""},
		{"behind others (8.3)", ":method: GET|:scheme: https|x: y|:authority: h|:path: /", ""},
		{"unknown (8.3)", get + ":foo: bar", ""},
		{":status in a request (8.3)", get + ":status: 200", ""},
		{"CONNECT (8.5)", ":method: CONNECT|:authority: h:1", "CONNECT  h:1  -1 []"},
		{"CONNECT with :path (8.5)", ":method: CONNECT|:authority: h:1|:path: /", ""},
		{"CONNECT with :scheme (8.5)", ":method: CONNECT|:authority: h:1|:scheme: http", ""},
		{"CONNECT without :authority (8.5)", ":method: CONNECT", ""},
		{"extended CONNECT (RFC 8441 4)", ":method: CONNECT|:protocol: websocket|:scheme: https|:path: /|:authority: h",
			"CONNECT https h / -1 []"},
		{"extended CONNECT without :path (RFC 8441 4)",
			":method: CONNECT|:protocol: websocket|:scheme: https|:authority: h", ""},
		{":protocol with GET (RFC 8441 4)", get + ":protocol: websocket", ""},
	} {
		var h Head
		err := h.Request(fields(tt.lines))
		check(t, tt.name, err, h.describe(h.Method, h.Scheme, h.Authority, h.Path), tt.want)
	}
}

// RFC 9110 section 5.5: spaces and tabs around a value are no part of it, whatever it means.
func TestBlanksAroundValues(t *testing.T) {
	for _, tt := range []struct{ name, lines, want string }{
		{"a space before a value", get + "x:  a", "GET https h / -1 [x=a]"},
		{"a tab after a value", get + "x: a\t", "GET https h / -1 [x=a]"},
		{"spaces around a value, and in it", get + "x:  \ta b \t|y: \t ", "GET https h / -1 [x=a b y=]"},
		{"spaces around what has a meaning", get + "host: h\t|content-length:  12 |te: trailers |priority: u=1 ",
			"GET https h / 12 [content-length=12 te=trailers priority=u=1]"},
		{"spaces around the pieces of Cookie", get + "cookie: a=1 |cookie:  b=2; ",
			"GET https h / -1 [cookie=a=1; b=2;]"},
		{"a space in a length", get + "content-length: 1 2", ""},
		{"CR at the end of a value (8.2.1)", get + "x: a\r", ""},
		{"a space behind LF (8.2.1)", get + "x: a\n ", ""},
		{"a space before a name (8.2.1)", get + " x: a", ""},
		{"a space behind a pseudo-field's value", ":method: GET|:scheme: https |:authority: h|:path: /", ""},
		{"Upgrade with spaces (8.2.2)", get + "upgrade:  a ", ""},
	} {
		var h Head
		err := h.Request(fields(tt.lines))
		check(t, tt.name, err, h.describe(h.Method, h.Scheme, h.Authority, h.Path), tt.want)
	}
}

func (h *Head) describe(first ...string) string {
	var list []string
	for _, f := range h.Fields {
		list = append(list, f.Name+"="+f.Value)
	}
	return fmt.Sprintf("%s %d %v", strings.Join(first, " "), h.Length, list)
}

func check(t *testing.T, name string, err error, got, want string) {
	t.Helper()
	e, _ := errors.AsType[*Error](err)
	switch {
	case want == "" && (e == nil || e.Code != ProtocolError):
		t.Errorf("%s: accepted as %q, %v", name, got, err)
	case want != "" && (err != nil || got != want):
		t.Errorf("%s: %q, %v, want %q", name, got, err, want)
	}
}

func TestResponseRules(t *testing.T) {
	for _, tt := range []struct{ name, lines, want string }{
		{"plain", ":status: 200|x: y", "200 -1 [x=y]"},
		{"interim", ":status: 103", "103 -1 []"},
		{"no status (8.3.2)", "x: y", ""},
		{"twice (8.3)", ":status: 200|:status: 200", ""},
		{"101 (8.6)", ":status: 101", ""},
		{"two digits", ":status: 20", ""},
		{"a sign", ":status: +20", ""},
		{"a request's field (8.3)", ":status: 200|:path: /", ""},
		{"fields of a connection (8.2.2)", ":status: 200|connection: close|a: b|keep-alive: x|proxy-connection: x|" +
			"transfer-encoding: chunked|upgrade: h2c|te: gzip|connection: a|content-length: 3",
			"200 3 [a=b content-length=3] without connection, keep-alive, proxy-connection, transfer-encoding, " +
				"upgrade, te"},
		{"TE trailers", ":status: 200|te: trailers", "200 -1 [te=trailers]"},
		{"spaces around values (RFC 9110 5.5)", ":status: 200|set-cookie: a=b; |content-length: 3 ",
			"200 3 [set-cookie=a=b; content-length=3]"},
		{"a space behind :status", ":status: 200 ", ""},
		{"NUL in a field of a connection (8.2.1)", ":status: 200|connection: a\x00", ""},
		{"cookies stay", ":status: 200|set-cookie: a|set-cookie: b", "200 -1 [set-cookie=a set-cookie=b]"},
	} {
		var h Head
		err := h.Response(fields(tt.lines))
		got := h.describe(fmt.Sprint(h.Status))
		if h.Dropped != 0 {
			got += " without " + h.Dropped.String()
		}
		check(t, tt.name, err, got, tt.want)
	}
}

func TestOfConnection(t *testing.T) {
	for name, want := range map[string]bool{"connection": true, "keep-alive": true, "proxy-connection": true,
		"transfer-encoding": true, "upgrade": true, "te": false, "trailer": false, "": false} {
		if got := OfConnection(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

// Errors name the field, however long its name is, and are one line.
func TestErrorsNameTheField(t *testing.T) {
	for name, want := range map[string]string{
		"X-Y":                    `: "X-Y"`,
		"a\nb":                   `: "a\nb"`,
		strings.Repeat("A", 100): `: "` + strings.Repeat("A", 40) + `"…`,
	} {
		var h Head
		err := h.Request(append(fields(get), hpack.Field{Name: name, Value: "v"}))
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestTrailerRules(t *testing.T) {
	for _, tt := range []struct{ name, lines, request, response string }{
		{"plain", "a: b", "[{a b false}] ", "[{a b false}] "},
		{"spaces (RFC 9110 5.5)", "a: b |c:  d", "[{a b false} {c d false}] ", "[{a b false} {c d false}] "},
		{"a pseudo-field (8.1)", "a: b|:path: /", "", ""},
		{"upper case (8.2)", "A: b", "", ""},
		{"fields of a connection (8.2.2)", "a: b|upgrade: x|te: x|c: d", "",
			"[{a b false} {c d false}] upgrade, te"},
	} {
		for _, request := range []bool{true, false} {
			want := map[bool]string{true: tt.request, false: tt.response}[request]
			kept, dropped, err := Trailers(fields(tt.lines), request)
			check(t, tt.name, err, fmt.Sprint(kept, " ", dropped), want)
		}
	}
}

func TestParsePriority(t *testing.T) { // RFC 9218 section 4
	for s, want := range map[string]Priority{
		"":                     {3, false},
		"u=0":                  {0, false},
		"u=7, i":               {7, true},
		"i,u=1":                {1, true},
		"i=?0":                 {3, false},
		"i=?1;x=2":             {3, true},
		"u=8":                  {3, false},
		"u=-1":                 {3, false},
		"u=1.5, i":             {3, true},
		"u=?1":                 {3, false},
		"i=1":                  {3, false},
		"u=2, u=5":             {5, false},
		`x="u=1,i", u=4`:       {4, false},
		`x="a\",i", u=4;q=",i`: {4, false},
	} {
		if got := ParsePriority(s); got != want {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
}

func TestAddWindow(t *testing.T) {
	for _, tt := range []struct {
		w    int32
		by   int64
		want int32
		ok   bool
	}{{10, 5, 15, true}, {10, -20, -10, true}, {MaxWindow - 1, 1, MaxWindow, true}, {MaxWindow, 1, MaxWindow, false},
		{-MaxWindow, -1, -MaxWindow, false}, {0, 1<<31 - 1, MaxWindow, true}} {
		if got, ok := AddWindow(tt.w, tt.by); got != tt.want || ok != tt.ok {
			t.Errorf("%d + %d: %d, %v", tt.w, tt.by, got, ok)
		}
	}
}

func TestBudgets(t *testing.T) {
	var b Budgets
	limits := &Limits{{200, 20}, {MaxBurst, 1000}, {1, 0}}
	for i := range 200 {
		if !b.Spend(0, 1, limits, 1000) {
			t.Fatalf("the budget is spent after %d", i)
		}
	}
	if b.Spend(0, 1, limits, 1000) {
		t.Error("one more than the burst")
	}
	if !b.Spend(0, 1, limits, 1100) { // two are back
		t.Error("the rate gives nothing back")
	}
	if b.Spend(0, 1, limits, 1100) {
		t.Error("the rate gives too much back")
	}
	b.Return(0, 10)
	if !b.Spend(0, 9, limits, 1100) {
		t.Error("Return gives nothing back")
	}
	if !b.Spend(0, 200, limits, 1<<31) || b.Spend(0, 1<<20, limits, 1<<31) || b.Spend(0, 1<<30, limits, 1<<31) {
		t.Error("long after")
	}
	if !b.Spend(1, MaxBurst, limits, 1<<31) || b.Spend(1, 1, limits, 1<<31) {
		t.Error("the largest burst")
	}
	if !b.Spend(2, 1, limits, 1<<31) || b.Spend(2, 1, limits, 1<<40) {
		t.Error("a budget without a rate")
	}
}

// Time that passes for one kind passes for all.
func TestBudgetsShareTheirClock(t *testing.T) {
	var b Budgets
	limits := &Limits{{10, 1}, {10, 3}, {10, 7}}
	for kind := range kinds {
		b.Spend(kind, 10, limits, 1000)
	}
	for ms := int64(1001); ms < 2000; ms++ { // not one of them is worth a whole thing
		b.Spend(0, 0, limits, ms)
	}
	for kind, back := range []int{1, 3, 7} {
		if !b.Spend(kind, back, limits, 2000) || b.Spend(kind, 1, limits, 2000) {
			t.Errorf("kind %d: %d are not back after a second", kind, back)
		}
	}
}

func TestErrors(t *testing.T) {
	if s := (&Error{Code: Cancel, Stream: 3, Reason: "why"}).Error(); s != "h2: error CANCEL of stream 3: why" {
		t.Error(s)
	}
	if s := (&Error{Code: 99, Reason: "why"}).Error(); s != "h2: connection error code 0x63: why" {
		t.Error(s)
	}
}
