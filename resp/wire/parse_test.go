package wire

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// values are replies on the wire, and what they are for people.
var values = []struct{ in, want string }{
	{"+OK\r\n", "OK"}, {"-ERR no\r\n", "(error) ERR no"}, {":-7\r\n", "-7"}, {":+7\r\n", "7"}, {"$3\r\na\r\n\r\n",
		"a\r\n"},
	{"$0\r\n\r\n", ""}, {"$-1\r\n", "null"}, {"*-1\r\n", "null"}, {"_\r\n", "null"}, {"*0\r\n", "[]"},
	{"*2\r\n$1\r\na\r\n*1\r\n:1\r\n", "[a [1]]"}, {"#t\r\n", "true"}, {"#f\r\n", "false"}, {",1.5\r\n", "1.5"},
	{",inf\r\n", "inf"}, {",-inf\r\n", "-inf"}, {",nan\r\n", "nan"}, {",1e+06\r\n", "1e+06"},
	{",-nan\r\n", "-nan"}, {",NAN\r\n", "NAN"}, {",nan(0x7f)\r\n", "nan(0x7f)"}, {",-Infinity\r\n", "-Infinity"},
	{",+INF\r\n", "+INF"}, {",1e400\r\n", "1e400"}, {",-.5\r\n", "-.5"},
	{"|1\r\n+k\r\n+v\r\n>1\r\n+hi\r\n", "[hi]"},
	{"(3492890328409238509324850943850943825024385\r\n", "3492890328409238509324850943850943825024385"},
	{"!5\r\nERR x\r\n", "(error) ERR x"}, {"=7\r\ntxt:abc\r\n", "abc"}, {"%1\r\n+k\r\n:1\r\n", "[k 1]"},
	{"~2\r\n:1\r\n:2\r\n", "[1 2]"}, {">2\r\n+message\r\n+hi\r\n", "[message hi]"},
	{"|1\r\n+ttl\r\n:9\r\n+OK\r\n", "OK"}, {"|0\r\n+OK\r\n", "OK"},
	{"*2\r\n|1\r\n+a\r\n:1\r\n|1\r\n+b\r\n:2\r\n:3\r\n:4\r\n", "[3 4]"}, {"%0\r\n", "[]"}, {"~0\r\n", "[]"},
	{"*1\r\n|1\r\n+a\r\n*0\r\n*0\r\n", "[[]]"}, {"|1\r\n|1\r\n+x\r\n+y\r\n+k\r\n+v\r\n:1\r\n", "1"},
}

// noValues are not, and why not.
var noValues = []struct{ in, want string }{
	{"hello\r\n", `begins with 'h'`}, {"\r\n", `begins with '\r'`}, {"+OK\n", "CRLF"}, {"+OK\rx", "CRLF"},
	{":\r\n", "number"}, {":1x\r\n", "number"}, {":99999999999999999999\r\n", "number"}, {":+-1\r\n", "number"},
	{"$x\r\n", "number"}, {"$-2\r\n", "number"}, {"*-2\r\n", "number"}, {"%-1\r\n", "number"}, {"!-1\r\n", "number"},
	{"$3\r\nabcde", "CRLF"}, {"#x\r\n", "boolean"}, {"#tt\r\n", "boolean"}, {",x\r\n", "number"}, {",0x1p3\r\n",
		"number"},
	{"(1.5\r\n", "number"}, {"(\r\n", "number"}, {"_x\r\n", "number"}, {"=3\r\nabc\r\n", "verbatim"},
	{"=5\r\nabcde\r\n", "verbatim"}, {"$?\r\n", "streamed"}, {"*?\r\n", "streamed"}, {"%?\r\n", "streamed"},
	{"~?\r\n", "streamed"}, {">?\r\n", "streamed"}, {";4\r\n", "streamed"}, {".\r\n", "streamed"},
	{"$536870913\r\n", "too large"}, {"*1048577\r\n", "too many"}, {"%524289\r\n", "too many"},
	{"*2\r\n*1048575\r\n", "too many"}, {strings.Repeat("*1\r\n", 70), "too deep"},
	{"+" + strings.Repeat("x", 70000), "too large"}, {"*1\r\n:\r\n", "number"},
	{"*2\r\n>1\r\n+hi\r\n+a\r\n+b\r\n", "in the middle"}, {"%1\r\n+k\r\n>0\r\n", "in the middle"},
	{"*1\r\n|1\r\n+k\r\n+v\r\n>0\r\n", "in the middle"}, {"|1\r\n+k\r\n>0\r\n", "in the middle"},
	{",-\r\n", "number"}, {",nano\r\n", "number"}, {",nan(\r\n", "number"}, {",+-inf\r\n", "number"},
	{",1_0\r\n", "number"},
	{"*9223372036854775807\r\n", "too many"}, {"%9223372036854775807\r\n", "too many"},
	{"|4611686018427387905\r\n", "too many"}, {"$9223372036854775807\r\n", "too large"},
}

func TestParseValue(t *testing.T) {
	for _, tt := range values {
		n, v, err := ParseValue([]byte(tt.in+"rest"), Limits{})
		if err != nil || n != len(tt.in) || v.String() != tt.want {
			t.Errorf("%q: %d, %q, %v; want %q", tt.in, n, v.String(), err, tt.want)
		}
		if n, _, err := ParseValue([]byte(tt.in[:len(tt.in)-1]), Limits{}); n != 0 || err != nil {
			t.Errorf("%q without its last byte: %d, %v", tt.in, n, err)
		}
		if c := v.Clone(); !reflect.DeepEqual(c, v) {
			t.Errorf("%q: the clone is %v", tt.in, c)
		}
		if got := string(AppendValue(nil, v, RESP3)); !same(got, tt.in) {
			t.Errorf("%q is appended as %q", tt.in, got)
		}
		if n, two, err := ParseValue(AppendValue(nil, v, RESP2), Limits{}); n == 0 || err != nil || two.Attr != nil {
			t.Errorf("%q in RESP2: %d, %v, %v", tt.in, n, two, err)
		}
	}
	for _, tt := range noValues {
		if n, _, err := ParseValue([]byte(tt.in), Limits{}); n != 0 || err == nil || !strings.Contains(err.Error(),
			tt.want) {
			t.Errorf("%.60q: %d, %v, want one about %s", tt.in, n, err, tt.want)
		}
	}
}

// same reports whether a value that was read and appended is the same to its reader.
func same(got, in string) bool {
	_, a, err := ParseValue([]byte(got), Limits{})
	_, b, _ := ParseValue([]byte(in), Limits{})
	return err == nil && reflect.DeepEqual(a, b)
}

func TestValueAs(t *testing.T) {
	v := func(in string) Value {
		n, v, err := ParseValue([]byte(in), Limits{})
		if n == 0 || err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		return v
	}
	if n, err := v("$2\r\n42\r\n").Int64(); n != 42 || err != nil {
		t.Error(n, err)
	}
	if _, err := v("$2\r\nx2\r\n").Int64(); err == nil || !strings.Contains(err.Error(), `"x2" is no integer`) {
		t.Error(err)
	}
	if _, err := v("-WRONGTYPE x\r\n").Int64(); err != Error("WRONGTYPE x") || err.(Error).Code() != "WRONGTYPE" {
		t.Error(err)
	}
	if f, err := v(",-inf\r\n").Float64(); !math.IsInf(f, -1) || err != nil {
		t.Error(f, err)
	}
	if b, err := v("#t\r\n").Bool(); !b || err != nil {
		t.Error(b, err)
	}
	m := v("%2\r\n+a\r\n:1\r\n+b\r\n:2\r\n")
	if got, ok := m.Lookup("b"); !ok || got.Int != 2 {
		t.Error(got, ok)
	}
	if got := v("*2\r\n+a\r\n:5\r\n").Strings(); !reflect.DeepEqual(got, []string{"a", "5"}) {
		t.Error(got)
	}
	if got := v("|1\r\n+ttl\r\n:9\r\n+OK\r\n").Attr; got == nil || got.Elems[1].Int != 9 {
		t.Error(got)
	}
}

// scanned parses p as a client does that gets it in pieces.
func scanned(p []byte, l Limits, cut func(rest int) int) (said []string, err error) {
	var kept []byte
	var scan ValueScan
	for len(p) > 0 {
		n := min(max(1, cut(len(p))), len(p))
		kept = append(kept, p[:n]...)
		p = p[n:]
		for len(kept) > 0 {
			complete, err := scan.Complete(kept, l)
			if err != nil {
				return said, err
			}
			if !complete {
				break
			}
			n, v, err := ParseValue(kept, l)
			if n == 0 || err != nil || n != scan.pos {
				return said, fmt.Errorf("a value that the scan has found complete after %d is not: %d, %v", scan.pos,
					n, err)
			}
			said = append(said, fmt.Sprintf("%c%v", v.Kind, v))
			kept, scan = append([]byte(nil), kept[n:]...), ValueScan{}
		}
	}
	return said, nil
}

func whole(p []byte, l Limits) (said []string, err error) {
	for len(p) > 0 {
		n, v, err := ParseValue(p, l)
		if n == 0 || err != nil {
			return said, err
		}
		said = append(said, fmt.Sprintf("%c%v", v.Kind, v))
		p = p[n:]
	}
	return said, nil
}

// A reply in pieces is the same as the whole, and so is what is wrong with it.
func checkSplit(t *testing.T, p []byte, l Limits, cut func(rest int) int) {
	t.Helper()
	want, wantErr := whole(p, l)
	got, err := scanned(p, l, cut)
	if !reflect.DeepEqual(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
		t.Errorf("%.80q in pieces: %q, %v; want %q, %v", p, got, err, want, wantErr)
	}
}

func TestValueAtAnySplit(t *testing.T) {
	var in []string
	for _, tt := range values {
		in = append(in, tt.in, tt.in+tt.in)
	}
	for _, tt := range noValues {
		in = append(in, tt.in, "+OK\r\n"+tt.in)
	}
	for _, s := range in {
		for _, size := range []int{1, 2, 3, 5, 8, 1000} {
			checkSplit(t, []byte(s), Limits{}, func(int) int { return size })
		}
	}
	for _, s := range tooLong {
		for size := range 40 {
			checkSplit(t, []byte(s), Limits{Bytes: 30}, func(int) int { return size })
		}
	}
}

// tooLong are lines that are longer than 30 bytes allow, with something else that is wrong.
var tooLong = []string{"+" + strings.Repeat("x", 30) + "\n", "*2\r\n:1\r\n+" + strings.Repeat("x", 22) + "\n",
	":" + strings.Repeat("1", 40) + "\n", "$" + strings.Repeat("1", 29) + "\rx", strings.Repeat("?", 31) + "\r\n"}

func FuzzValue(f *testing.F) {
	for _, tt := range values {
		f.Add([]byte(tt.in), uint64(1))
	}
	for _, tt := range noValues {
		f.Add([]byte(tt.in), uint64(1))
	}
	f.Add([]byte("+"+strings.Repeat("x", 1<<14)+"\n"), uint64(308))
	f.Fuzz(func(t *testing.T, p []byte, seed uint64) {
		l := Limits{Args: 100, Bulk: 1 << 12, Bytes: 1 << 14, Depth: 5}
		checkSplit(t, p, l, func(rest int) int {
			seed = seed*6364136223846793005 + 1442695040888963407
			return int(seed>>33)%rest%31 + 1
		})
		n, v, err := ParseValue(p, l)
		if n == 0 || err != nil {
			return
		}
		for _, proto := range []Protocol{RESP2, RESP3} {
			if m, _, err := ParseValue(AppendValue(nil, v, proto), Limits{}); m == 0 || err != nil {
				t.Errorf("%q is appended as %q: %d, %v", p[:n], AppendValue(nil, v, proto), m, err)
			}
		}
	})
}

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern, s string
		want       bool
	}{
		{"*", "", true}, {"", "", true}, {"", "a", false}, {"h?llo", "hello", true}, {"h?llo", "hllo", false},
		{"h*llo", "heeeello", true}, {"h[ae]llo", "hallo", true}, {"h[ae]llo", "hillo", false},
		{"h[^e]llo", "hallo", true}, {"h[^e]llo", "hello", false}, {"h[a-b]llo", "hbllo", true},
		{"h[b-a]llo", "hallo", true}, {`h\*llo`, "h*llo", true}, {`h\*llo`, "hello", false}, {"*a*b", "xaxxb", true},
		{"*a*b", "xaxxbc", false}, {"[", "[", false}, {"[a", "a", true}, {`[\]]`, "]", true}, {`a\`, `a\`, true},
		{"news.*.eu", "news.sport.eu", true}, {"**", "x", true}, {"a", "", false}, {"?", "", false}, {"[a]", "", false},
	} {
		if got := Match(tt.pattern, tt.s); got != tt.want {
			t.Errorf("Match(%q, %q) is %v", tt.pattern, tt.s, got)
		}
	}
}

// A hostile pattern costs its length for each byte of the other string, whatever it consists of.
func TestMatchIsBounded(t *testing.T) {
	const n = 200
	a := strings.Repeat("a", 5*n)
	for _, pattern := range []string{strings.Repeat("a*", n) + "b", strings.Repeat("*a", n) + "b",
		"*" + strings.Repeat("a", n) + "b*", "*" + strings.Repeat("?", n) + "b", strings.Repeat("*?", n) + "b",
		"*" + strings.Repeat("[^b]", n) + "b*", "*[" + strings.Repeat("b", n) + "]", strings.Repeat(`*\a`, n) + "b",
		strings.Repeat("*", n) + "b", "*[" + strings.Repeat("b-c", n), strings.Repeat("*[ab]", n) + "[b]"} {
		if ok, looked := match(pattern, a); ok || looked > len(pattern)*(len(a)+1) {
			t.Errorf("%.20q of %d bytes: %v, behind %d steps for %d bytes", pattern, len(pattern), ok, looked, len(a))
		}
	}
}

// Match agrees with the definition, for which any number of steps are allowed.
func TestMatchLikeItsDefinition(t *testing.T) {
	var slow func(pattern, s string) bool
	slow = func(pattern, s string) bool {
		if pattern == "" {
			return s == ""
		}
		if pattern[0] == '*' {
			return slow(pattern[1:], s) || s != "" && slow(pattern, s[1:])
		}
		if s == "" {
			return false
		}
		next, ok := matchOne(pattern, 0, s[0])
		return ok && slow(pattern[next:], s[1:])
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		pattern, s := make([]byte, r.IntN(12)), make([]byte, r.IntN(12))
		for i := range pattern {
			pattern[i] = `**?[]^-\abab`[r.IntN(12)]
		}
		for i := range s {
			s[i] = "ab]"[r.IntN(3)]
		}
		ok, looked := match(pattern, s)
		if ok != slow(string(pattern), string(s)) || looked > len(pattern)*(len(s)+1)+len(s) {
			t.Errorf("%q, %q: %v, behind %d steps", pattern, s, ok, looked)
		}
	}
}

// A reply without elements is read without an allocation.
func TestParseValueAllocatesNothing(t *testing.T) {
	for _, in := range []string{"+OK\r\n", ":1\r\n", "$5\r\nhello\r\n", "_\r\n"} {
		p := []byte(in)
		if n := testing.AllocsPerRun(100, func() { _, _, _ = ParseValue(p, Limits{}) }); n > 0 {
			t.Errorf("%q: %v allocations", in, n)
		}
	}
}
