package wire

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// malformed is input of peers that make mistakes, or try to: strings, each with another one behind
// it that is repeated. What is said about it is compared with redis-server, too.
func malformed(t testing.TB) (all []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/malformed.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var in, repeated string
		var times int
		if n, _ := fmt.Sscanf(line, "%q %d*%q", &in, &times, &repeated); n == 0 {
			t.Fatalf("no string: %s", line)
		}
		all = append(all, in+strings.Repeat(repeated, times))
	}
	return all
}

// all parses p as a server does, until it is used up or wrong.
func all(p []byte, g Grammar) (said []string, err error) {
	for len(p) > 0 {
		n, args, err := g.Parse(p, nil)
		if err != nil || n == 0 {
			return said, err
		}
		if len(args) > 0 {
			said = append(said, fmt.Sprintf("%q", args))
		}
		p = p[n:]
	}
	return said, nil
}

// pieces parses what is cut by cut as a connection does that gets it so.
func pieces(p []byte, g Grammar, cut func(rest int) int) (said []string, err error) {
	var kept []byte
	var scan CommandScan
	for len(p) > 0 {
		n := min(max(1, cut(len(p))), len(p))
		kept = append(kept, p[:n]...)
		p = p[n:]
		for len(kept) > 0 {
			complete, err := scan.Complete(kept, &g)
			if err != nil {
				return said, err
			}
			if !complete {
				break
			}
			used, args, err := g.Parse(kept, nil)
			if err != nil {
				return said, err
			}
			if used == 0 {
				return said, fmt.Errorf("a command that the scan has found complete is not: %.80q", kept)
			}
			if len(args) > 0 {
				said = append(said, fmt.Sprintf("%q", args))
			}
			kept, scan = append([]byte(nil), kept[used:]...), CommandScan{}
		}
	}
	return said, nil
}

func sameAtAnySplit(t *testing.T, p []byte, g Grammar) {
	t.Helper()
	want, wantErr := all(p, g)
	for _, size := range []int{1, 2, 3, 7, 64, 1000, 65536, 65537} {
		if len(p)/size > 200_000 {
			continue
		}
		got, err := pieces(p, g, func(int) int { return size })
		if !slices.Equal(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%.80q in pieces of %d: %.200q, %v; want %.200q, %v", p, size, got, err, want, wantErr)
		}
	}
}

func TestCommandAtAnySplit(t *testing.T) {
	for _, s := range malformed(t) {
		for _, stranger := range []bool{false, true} {
			sameAtAnySplit(t, []byte(s), NewGrammar(Limits{}, stranger))
		}
	}
}

func TestParseCommand(t *testing.T) {
	for _, tt := range []struct{ in, want, err string }{
		{"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nrest", `["GET" "k"]`, ""},
		{"SET \"a b\" 'c'\r\n", `["SET" "a b" "c"]`, ""},
		{"*2\r\n$3\r\nGET\r\n$1\r\nk\r", "", ""},
		{"*2\r\n$3\r\nGET\r\nx\r\n", "", "expected '$', got 'x'"},
		{"*x\r\n", "", "invalid multibulk length"},
		{"*1\r\n$-1\r\n", "", "invalid bulk length"},
		{"ECHO \"a\r\n", "", "unbalanced quotes in request"},
		{"*" + strings.Repeat("1", 70000), "", "too big mbulk count string"},
		{"*1\r\n$" + strings.Repeat("1", 70000), "", "too big bulk count string"},
		{strings.Repeat("x", 70000), "", "too big inline request"},
	} {
		n, args, err := ParseCommand([]byte(tt.in), nil, Limits{})
		if tt.err != "" {
			if err == nil || err.Error() != "resp: protocol error: "+tt.err {
				t.Errorf("%.80q: %v, want %s", tt.in, err, tt.err)
			}
			continue
		}
		if got := fmt.Sprintf("%q", args); err != nil || n == 0 != (tt.want == "") || n > 0 && got != tt.want {
			t.Errorf("%.80q: %d, %s, %v; want %s", tt.in, n, got, err, tt.want)
		}
	}
}

func TestCommandLimits(t *testing.T) {
	l := Limits{Args: 3, Bulk: 10, Bytes: 50}
	for in, want := range map[string]string{
		"*4\r\n":        "invalid multibulk length",
		"*3\r\n$11\r\n": "invalid bulk length",
		"*3\r\n$10\r\n0123456789\r\n$9\r\n012345678\r\n$10\r\n": "invalid bulk length",
	} {
		_, _, err := ParseCommand([]byte(in), nil, l)
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", in, err, want)
		}
	}
	g := NewGrammar(Limits{}, true)
	for in, want := range map[string]error{"*11\r\n": errStrangerArray, "*1\r\n$16385\r\n": errStrangerBulk,
		"*10\r\n$16384\r\n": nil} {
		if _, _, err := g.Parse([]byte(in), nil); err != want {
			t.Errorf("a stranger's %q: %v, want %v", in, err, want)
		}
	}
}

// late is a grammar that refuses what comes, not what is announced, as that of default limits does.
func late(l Limits) Grammar {
	g := NewGrammar(l, false)
	g.counts, g.early = 1000, false
	return g
}

// Defaults are limits for what comes. What is announced may be as much as Redis allows.
func TestDefaultLimits(t *testing.T) {
	for _, in := range []string{"*1048577\r\n$4\r\n", "*2147483647\r\n", "*1\r\n$536870912\r\nabc"} {
		if n, _, err := ParseCommand([]byte(in), nil, Limits{}); n != 0 || err != nil {
			t.Errorf("%q: %d, %v", in, n, err)
		}
	}
	ten := "$10\r\n0123456789\r\n"
	for in, want := range map[string]error{
		"*4\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r":    nil,
		"*4\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n":  errArrayLength,
		"*3\r\n" + ten + ten + "$1\r\n":            errBulkLength,
		"*3\r\n" + ten + ten:                       nil,
		"*3\r\n" + ten + ten + "$1\r\na":           errBulkLength,
		"*3\r\n" + ten + ten + "$1\r\na\r\n":       errBulkLength,
		"*4\r\n" + ten + ten + "$1\r\na\r\n":       errBulkLength,
		"*2\r\n$100\r\n" + strings.Repeat("x", 29): nil,
		"*2\r\n$100\r\n" + strings.Repeat("x", 30): errBulkLength,
		"*3\r\n" + ten + ten + "xxxxxxxxxxxx":      errBulkLength,
		"*3\r\n" + ten + ten + "xxxxxxxxxxxx\r\n":  errBulkLength,
		"*2\r\n$" + strings.Repeat("1", 70_000):    errBulkLength,
	} {
		g := late(Limits{Args: 3, Bytes: 40})
		if n, _, err := g.Parse([]byte(in), nil); n != 0 || err != want {
			t.Errorf("%.80q: %d, %v; want %v", in, n, err, want)
		}
		sameAtAnySplit(t, []byte(in), g)
	}
}

// What a command announces costs nothing before it comes.
func TestAnnouncedArgumentsCostNothing(t *testing.T) {
	in := []byte("*1048576\r\n$500000000\r\n")
	if n := testing.AllocsPerRun(100, func() { _, _, _ = ParseCommand(in, nil, Limits{Bytes: 1 << 30}) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A command of a megabyte that comes byte by byte is looked at once.
func TestScanIsLinear(t *testing.T) {
	in := AppendCommand(nil, "SET", "k", strings.Repeat("v", 1<<20))
	g := NewGrammar(Limits{}, false)
	var scan CommandScan
	for i := range in {
		if complete, err := scan.Complete(in[:i+1], &g); err != nil || complete != (i == len(in)-1) {
			t.Fatalf("%d of %d bytes: %v, %v", i+1, len(in), complete, err)
		}
	}
}

func FuzzCommand(f *testing.F) {
	for _, s := range malformed(f) {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, p []byte, seed uint64) {
		g := NewGrammar(Limits{Args: 100, Bulk: 1 << 16, Bytes: 1 << 18}, seed%7 == 0)
		if seed%3 == 0 {
			g = late(Limits{Args: 3, Bulk: 1 << 16, Bytes: 40})
		}
		want, wantErr := all(p, g)
		got, err := pieces(p, g, func(rest int) int {
			seed = seed*6364136223846793005 + 1442695040888963407
			return int(seed>>33)%rest%97 + 1
		})
		if !slices.Equal(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%q in pieces: %q, %v; want %q, %v", p, got, err, want, wantErr)
		}
	})
}

// What AppendCommand writes is read as it was.
func TestAppendCommand(t *testing.T) {
	want := [][]byte{[]byte("SET"), {}, []byte("\r\n\x00")}
	p := AppendCommand(nil, want...)
	n, got, err := ParseCommand(p, nil, Limits{})
	if err != nil || n != len(p) || !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("%q: %d, %q, %v", p, n, got, err)
	}
}

func BenchmarkParseCommand(b *testing.B) {
	in := AppendCommand(nil, "SET", "key:__rand_int__", "xxx")
	g := NewGrammar(Limits{}, false)
	var args [][]byte
	b.ReportAllocs()
	for b.Loop() {
		if n, a, err := g.Parse(in, args[:0]); n == 0 || err != nil {
			b.Fatal(err)
		} else {
			args = a
		}
	}
}
