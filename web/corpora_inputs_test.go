package web

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/internal/soak"
)

// linesOf is the lines of a file that are no comments, each with its Go escapes resolved. A line
// that is a heading stays as it is.
func linesOf(t *testing.T, name string) (lines []string) {
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		if line == `""` {
			line = ""
		}
		line, err := strconv.Unquote(`"` + line + `"`)
		if err != nil {
			t.Fatalf("testdata/%s:%d: %v", name, i+1, err)
		}
		lines = append(lines, line)
	}
	return lines
}

// requestsFile is the corpus that was written by hand.
func requestsFile(t *testing.T) []string { return linesOf(t, "requests.txt") }

// parts is what requests of the other corpora are made of, by heading.
type parts struct {
	t      *testing.T
	byName map[string][]string
}

func readParts(t *testing.T) parts {
	c, name := parts{t, map[string][]string{}}, ""
	for _, line := range linesOf(t, "parts.txt") {
		if heading, ok := strings.CutPrefix(line, "== "); ok {
			name = heading
		} else {
			c.byName[name] = append(c.byName[name], line)
		}
	}
	return c
}

func (c parts) parts(name string) []string {
	if len(c.byName[name]) == 0 {
		c.t.Fatalf("testdata/parts.txt has no %s", name)
	}
	return c.byName[name]
}

// misplaced is what is put there: each byte, and some sequences.
func (c parts) misplaced() (all []string) {
	for b := range 256 {
		all = append(all, string([]byte{byte(b)}))
	}
	return append(all, c.parts("misplaced")...)
}

func (c parts) bytesInPlaces(every int) (inputs []string) {
	for i, place := range c.parts("places") {
		for j, what := range c.misplaced() {
			if (i+j)%every == 0 {
				inputs = append(inputs, strings.Replace(place, "§", what, 1))
			}
		}
	}
	return inputs
}

// oddLineEnds are a chunked request of which one line ends as no line should.
func (c parts) oddLineEnds() (inputs []string) {
	lines := []string{"POST / HTTP/1.1", "Host: h", "Transfer-Encoding: chunked", "", "5;a=b", "hello", "0", "X: y", ""}
	for i := range lines {
		for _, end := range c.parts("ends of lines") {
			var b strings.Builder
			for j, line := range lines {
				b.WriteString(line)
				if i == j {
					b.WriteString(end)
				} else {
					b.WriteString("\r\n")
				}
			}
			inputs = append(inputs, b.String())
		}
	}
	return inputs
}

// oddFramings are requests whose bodies are as long as two fields say that do not agree on it.
func (c parts) oddFramings() (inputs []string) {
	const chunks, plain = "5\r\nhello\r\n0\r\n\r\n", "hello"
	request := func(version, fields, body string) {
		inputs = append(inputs, "POST / "+version+"\r\nHost: h\r\n"+fields+"\r\n\r\n"+body)
	}
	for _, coding := range c.parts("codings") {
		for _, version := range []string{"HTTP/1.1", "HTTP/1.0"} {
			request(version, "Transfer-Encoding: "+coding, chunks)
			request(version, "Transfer-Encoding:"+coding+"\r\nContent-Length: 5", plain)
			request(version, "Content-Length: 15\r\nTransfer-Encoding: "+coding, chunks)
		}
	}
	for _, name := range c.parts("names of codings") {
		request("HTTP/1.1", name+": chunked", chunks)
		request("HTTP/1.1", name+": chunked\r\nContent-Length: 5", plain)
		request("HTTP/1.1", "Content-Length: 15\r\n"+name+": chunked", chunks)
	}
	for _, length := range c.parts("lengths") {
		request("HTTP/1.1", "Content-Length: "+length, plain)
		request("HTTP/1.0", "Connection: keep-alive\r\nContent-Length: "+length, plain)
		request("HTTP/1.1", "Content-Length: "+length+"\r\nTransfer-Encoding: chunked", chunks)
		request("HTTP/1.1", "Content-Length: "+length+"\r\nContent-Length: 5", plain)
	}
	for _, name := range c.parts("names of lengths") {
		request("HTTP/1.1", name+": 5", plain)
		request("HTTP/1.1", name+": 5\r\nContent-Length: 0", plain)
		request("HTTP/1.1", name+": 5\r\nTransfer-Encoding: chunked", chunks)
	}
	return inputs
}

// oddChunks are chunked bodies whose size lines, data and trailers are odd.
func (c parts) oddChunks() (inputs []string) {
	body := func(s string) {
		inputs = append(inputs, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"+s)
	}
	for _, size := range c.parts("sizes of chunks") {
		body(size + "\r\nhello\r\n0\r\n\r\n")
		body("3\r\nabc\r\n" + size + "\r\nhello\r\n0\r\n\r\n")
	}
	for _, last := range c.parts("last chunks") {
		body("5\r\nhello\r\n" + last + "\r\n\r\n")
	}
	for _, end := range c.parts("ends of chunks") {
		body("5\r\nhello" + end + "0\r\n\r\n")
	}
	for _, trailer := range c.parts("trailers") {
		body("5\r\nhello\r\n0\r\n" + trailer + "\r\n")
	}
	for _, announced := range c.parts("announced trailers") {
		inputs = append(inputs, "POST / HTTP/1.1\r\nHost: h\r\nTrailer: "+announced+"\r\nTransfer-Encoding: "+
			"chunked\r\n\r\n3\r\nabc\r\n0\r\nX: 1\r\nY: 2\r\n\r\n")
	}
	return inputs
}

// oddHeads are requests of which target, host or version is odd.
func (c parts) oddHeads() (inputs []string) {
	for _, target := range c.parts("targets") {
		for _, method := range []string{"GET", "OPTIONS", "CONNECT", "POST"} {
			inputs = append(inputs, method+" "+target+" HTTP/1.1\r\nHost: h\r\n\r\n")
		}
		inputs = append(inputs, "GET "+target+" HTTP/1.0\r\n\r\n")
	}
	for _, host := range c.parts("hosts") {
		for _, line := range []string{"GET / HTTP/1.1", "GET / HTTP/1.0", "GET http://other/ HTTP/1.1",
			"CONNECT a:1 HTTP/1.1", "OPTIONS * HTTP/1.1"} {
			inputs = append(inputs, line+"\r\nHost: "+host+"\r\n\r\n",
				line+"\r\n"+strings.TrimRight("host:"+host, " ")+"\r\nX: y\r\n\r\n")
		}
	}
	for _, version := range c.parts("versions") {
		for _, start := range []string{"GET /", "PRI *", "POST /"} {
			inputs = append(inputs, start+" "+version+"\r\nHost: h\r\n\r\n", start+" "+version+"\r\n\r\n")
		}
	}
	for n := range 9 {
		for _, empty := range []string{"\r\n", "\n", " \r\n"} {
			inputs = append(inputs, strings.Repeat(empty, n)+"GET / HTTP/1.1\r\nHost: h\r\n\r\n"+strings.Repeat(empty,
				n),
				"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\na"+strings.Repeat(empty, n))
		}
	}
	return inputs
}

// mutants are valid requests that chance has changed.
func (c parts) mutants(n int) (inputs []string) {
	seeds, tokens := c.parts("seeds of mutants"), c.parts("tokens")
	for seed := range uint64(n) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := seeds[r.IntN(len(seeds))]
		for range 1 + r.IntN(3) {
			i := r.IntN(len(s))
			j := min(len(s), i+1+r.IntN(1<<r.IntN(5)))
			switch r.IntN(5) {
			case 0:
				s = s[:i] + s[i+1:]
			case 1:
				s = s[:i] + string([]byte{byte(r.IntN(256))}) + s[i+1:]
			case 2:
				s = s[:i] + tokens[r.IntN(len(tokens))] + s[i:]
			case 3:
				s = s[:j] + s[i:] // some of it twice
			case 4:
				s = s[:i] + s[j:] + "\r\n"
			}
		}
		inputs = append(inputs, s)
	}
	return inputs
}

// A corpus is inputs of one kind.
type corpus struct {
	name   string
	inputs []string
}

// corpora are all inputs, or the usual part of them.
func corpora(t *testing.T) []corpus {
	every, some := 7, 300
	if soak.On(t) {
		every, some = 1, 4000
	}
	if s := os.Getenv("MYRIAD_MUTANTS"); s != "" {
		fmt.Sscan(s, &some)
	}
	c := readParts(t)
	return []corpus{
		{"by hand", requestsFile(t)}, {"bytes in places", c.bytesInPlaces(every)}, {"line ends", c.oddLineEnds()},
		{"framings", c.oddFramings()}, {"chunks", c.oddChunks()},
		{"heads", c.oddHeads()}, {"mutants", c.mutants(some)},
	}
}

func TestLikeNetHTTP(t *testing.T) { likeNetHTTP(t, overHTTP1, decisions) }

// likeNetHTTP runs the corpora, and wants each decision to be shown by an input.
func likeNetHTTP(t *testing.T, v version, decisions []*decision) {
	for _, c := range corpora(t) {
		t.Run(c.name, func(t *testing.T) { differ(t, v, c.inputs, decisions) })
	}
	for _, d := range decisions {
		if d.shown == 0 {
			t.Errorf("no input shows what has been decided: %s", d.why)
		}
		t.Logf("%d: %s", d.shown, d.why)
	}
}
