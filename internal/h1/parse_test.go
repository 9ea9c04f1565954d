package h1

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/internal/httpscript"
)

// parsing plays what testdata gives the parsers: a request, the fields of an otherwise good one, a
// response, a chunked body, or its trailers. "early" is a request, first without its last byte.
// What they make of it stands below. Settings are those of Limits, in
// numbers or as MaxInt.
type parsing struct {
	t   *testing.T
	lim Limits
}

func playParsing(t *testing.T, file string) {
	httpscript.Run(t, "testdata/"+file, func(t *testing.T, _ string, s httpscript.Settings,
		_ *httpscript.Handler) httpscript.Player {
		p := parsing{t: t}
		for name, value := range s {
			into := map[string]*int{"HeadBytes": &p.lim.HeadBytes, "LineBytes": &p.lim.LineBytes,
				"Fields": &p.lim.Fields}[name]
			n, err := strconv.Atoi(value)
			if value == "MaxInt" {
				n, err = math.MaxInt, nil
			}
			if into == nil || err != nil {
				t.Fatalf("no setting %s=%s", name, value)
			}
			*into = n
		}
		return p
	})
}

// inputs are those of a file.
func inputs(t testing.TB, file string) (all []string) {
	t.Helper()
	cases, err := httpscript.Read("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		for _, command := range c.Commands {
			all = append(all, input(command))
		}
	}
	return all
}

func input(c *httpscript.Command) (in string) {
	for _, word := range c.Args {
		in += httpscript.Text(word)
	}
	return in
}

func (p parsing) Do(c *httpscript.Command) ([]string, error) {
	in := input(c)
	switch c.Verb {
	case "request":
		return p.request(in), nil
	case "fields":
		return p.request(get(in)), nil
	case "early":
		return append(p.request(in[:len(in)-1]), p.request(in)...), nil
	case "response":
		return p.response(in), nil
	case "chunks":
		return p.chunks(in), nil
	case "trailer":
		return p.trailer(in), nil
	}
	return nil, errors.New("no such command")
}

// outcome is what a parser has said of its input, whose meaning is text.
func outcome(n, all int, err error, text string) []string {
	switch {
	case err != nil && n != 0:
		return []string{fmt.Sprintf("refused behind %d bytes: %v", n, err)}
	case err != nil:
		return []string{fmt.Sprint("refused: ", err)}
	case n == 0:
		return []string{"incomplete"}
	case n != all:
		text += fmt.Sprintf(", %d bytes", n)
	}
	return []string{text}
}

func (p parsing) request(in string) []string {
	var h Head
	n, err := ParseRequest([]byte(in), p.lim, &h)
	if n > 0 {
		if m, err := ParseRequest([]byte(in+"rest"), p.lim, &h); m != n || err != nil {
			p.t.Errorf("%d, %v with more behind it, %d without", m, err, n)
		}
	}
	h.Fields = nil
	return outcome(n, len(in), err, describe(&h))
}

func (p parsing) response(in string) []string {
	var h ResponseHead
	n, err := ParseResponse([]byte(in), p.lim, &h)
	if n > 0 {
		if m, err := ParseResponse([]byte(in+"body"), p.lim, &h); m != n || err != nil {
			p.t.Errorf("%d, %v with a body behind it, %d without", m, err, n)
		}
	}
	return outcome(n, len(in), err, fmt.Sprintf("%d %q length=%d chunked=%t keep=%t up=%t none=%t fields=%d", h.Status,
		h.Reason, h.ContentLength, h.Chunked, h.KeepAlive, h.Upgrade, h.NoBody, len(h.Fields)))
}

// chunks decodes a body as it is and in pieces.
func (p parsing) chunks(in string) (lines []string) {
	for _, piece := range []func() int{allAtOnce, func() int { return 1 }, pieces(7)} {
		data, used, done, err := decodeAll([]byte(in), piece)
		line := httpscript.Quote(data)
		switch {
		case err != nil && !done:
			line += fmt.Sprint(", refused: ", err)
		case err != nil || !done || used != len(in):
			line += fmt.Sprintf(", %v, done: %t, %d bytes of %d", err, done, used, len(in))
		}
		if len(lines) == 0 || lines[0] != line {
			lines = append(lines, line)
		}
	}
	return lines
}

func (p parsing) trailer(in string) []string {
	n, fields, err := ParseTrailer([]byte(in), p.lim, []Field{{Name: []byte("kept")}})
	var s Scan
	ready, scanErr := false, error(nil)
	for i := 1; i <= len(in) && !ready && scanErr == nil; i++ {
		ready, scanErr = s.Trailer([]byte(in[:i]), p.lim)
	}
	if ready != (n > 0) || scanErr != err {
		p.t.Errorf("byte by byte: ready %t, %v; %d, %v at once", ready, scanErr, n, err)
	}
	var text []string
	for _, f := range fields[min(1, len(fields)):] {
		text = append(text, fmt.Sprintf("%s=%s", f.Name, f.Value))
	}
	return outcome(n, len(in), err, "fields "+strings.Join(text, " "))
}

func TestParseRequestAccepts(t *testing.T)      { playParsing(t, "requests.txt") }
func TestParseRequestRefuses(t *testing.T)      { playParsing(t, "refused.txt") }
func TestParseRequestLimits(t *testing.T)       { playParsing(t, "limits.txt") }
func TestErrorsDoNotWaitForTheEnd(t *testing.T) { playParsing(t, "early.txt") }
func TestHostOfTarget(t *testing.T)             { playParsing(t, "targets.txt") }
func TestParseResponse(t *testing.T)            { playParsing(t, "responses.txt") }
func TestParseTrailer(t *testing.T)             { playParsing(t, "trailers.txt") }
func TestChunked(t *testing.T)                  { playParsing(t, "chunks.txt") }
