package h2_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
	"github.com/myriad-go/myriad/internal/httpscript"
)

// rules plays what testdata has of the fields of requests, responses and trailers, and of frames.
// What is made of them stands below.
type rules struct{ t *testing.T }

func playRules(t *testing.T, file string) {
	httpscript.Run(t, "testdata/"+file, func(t *testing.T, _ string, _ httpscript.Settings,
		_ *httpscript.Handler) httpscript.Player {
		return rules{t}
	})
}

// fields are those of words name=value.
func fields(words ...string) (all []hpack.Field) {
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		all = append(all, hpack.Field{Name: httpscript.Text(name), Value: value})
	}
	return all
}

func (r rules) Do(c *httpscript.Command) (lines []string, err error) {
	var h h2.Head
	words := c.Args
	switch c.Verb {
	case "get":
		words = append([]string{":method=GET", ":scheme=https", ":authority=h", ":path=/"}, words...)
		fallthrough
	case "request":
		err = h.Request(fields(words...))
		lines = []string{fmt.Sprintf("%s %s %s %s length %d %q", h.Method, h.Scheme, h.Authority, h.Path, h.Length,
			httpscript.FieldWords(h.Fields))}
	case "response":
		err = h.Response(fields(words...))
		lines = []string{fmt.Sprintf("%d length %d %q without %q", h.Status, h.Length,
			httpscript.FieldWords(h.Fields), h.Dropped)}
	case "trailers":
		for _, request := range []bool{true, false} {
			kept, dropped, err := h2.Trailers(fields(words...), request)
			lines = append(lines, fmt.Sprintf("of a request: %t: %q without %q, %v", request,
				httpscript.FieldWords(kept), dropped, err))
		}
	default:
		p, err := httpscript.Frame(c.Verb, c.Args)
		if err != nil {
			return nil, err
		}
		return r.frame(p), nil
	}
	if err != nil {
		lines = []string{err.Error()}
	}
	return lines, nil
}

// frame is how it is refused. With an error of its stream it is whole.
func (r rules) frame(p []byte) []string {
	n, _, err := h2.ParseFrame(p, 100)
	if e, _ := errors.AsType[*h2.Error](err); e != nil && e.Stream != 0 && n != len(p) {
		r.t.Errorf("%d bytes of %d, %v", n, len(p), err)
	}
	return []string{fmt.Sprint(err)}
}

func TestRequestRules(t *testing.T)      { playRules(t, "requests.txt") }
func TestResponseRules(t *testing.T)     { playRules(t, "responses.txt") }
func TestTrailerRules(t *testing.T)      { playRules(t, "trailers.txt") }
func TestParseFrameRefuses(t *testing.T) { playRules(t, "frames.txt") }
