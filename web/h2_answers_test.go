package web

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/myriad-go/myriad/internal/httpscript"
)

// distinct are the first requests of inputs without what has no place in HTTP/2: fields of a
// connection, and targets with a host. Inputs that differ in HTTP/1 alone are one.
func distinct(inputs []string) (all []*message) {
	known := map[string]bool{}
	for _, input := range inputs {
		m := translate(input)
		for i := len(m.head) - 2; i >= 0; i -= 2 {
			if ofHTTP1(m.head[i]) {
				m.head = slices.Delete(m.head, i, i+2)
			}
		}
		if key := fmt.Sprintf("%q", *m); !known[key] && !strings.Contains(m.one(":path"), "://") {
			known[key] = true
			all = append(all, m)
		}
	}
	return all
}

// likeOverHTTP2 sends inputs to both servers with the same handler, and compares what clients and
// handlers get. decided is why they differ on purpose; "": they do not.
func likeOverHTTP2(t *testing.T, c *httpscript.Case, inputs []string, decided string) {
	var handler *httpscript.Handler
	var running sync.WaitGroup // a stream may end before its handler
	var panics atomic.Int64    // which are logged behind the handler
	apart := differs(t, serveStandard, serve, func(s *Server) {
		h := new(httpscript.Handler)
		prepareHandler(t, h)
		if err := c.Handle(h); err != nil {
			t.Fatal(err)
		}
		handler = h
		s.Protocols, s.Handler = plainHTTP2(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running.Add(1)
			defer running.Done()
			defer func() {
				if v := recover(); v != nil {
					if v != http.ErrAbortHandler {
						panics.Add(1)
					}
					panic(v)
				}
			}()
			h.ServeHTTP(w, r)
		})
	}, func(t *testing.T, f *fixture, r *record) {
		for _, m := range distinct(inputs) {
			p := newPeer(t, f.addr)
			r.add("%q %s", m.head, p.ask(m))
			p.Close()
			running.Wait()
		}
		within(t, "panics are logged", func() bool {
			return int64(strings.Count(f.log.String(), "panic serving")) >= panics.Load()
		})
		panics.Store(0)
		r.add("handler: %q", handler.Notes())
		r.add("log: %s", firstLines(strings.ReplaceAll(f.log.String(), "http2: ", "http: ")))
	})
	reportDecided(t, decided, apart)
}

// reportDecided fails if two servers are apart without a decision, or are not with one.
func reportDecided(t *testing.T, decided, apart string) {
	t.Helper()
	switch {
	case decided == byChance:
	case decided != "" && apart == "":
		t.Errorf("does not show that %s", decided)
	case decided == "" && apart != "":
		t.Error(apart)
	}
}

// byChance is for what depends on when a body comes, with both servers.
const byChance = "chance decides"

// decidedOver2 are the handlers whose answers differ over HTTP/2 on purpose.
var decidedOver2 = map[string]string{
	"a byte more":                    "an answer of more than 2 KiB has no length by itself",
	"large":                          "a Write to HEAD of more than 4 KiB succeeds",
	"flushed":                        "a Flush of what is written to HEAD succeeds",
	"a length of nothing":            "a Write keeps to the length, and the stream is reset",
	"a length but no body":           "the stream of a short answer is reset",
	"too little of the length":       "the stream of a short answer is reset",
	"too much for the length":        "a Write keeps to the length, and the stream is reset",
	"fields of all kinds":            "a field's value is sent without spaces around it",
	"upgrade that is none":           "Upgrade is not sent",
	"a length that is none":          "an invalid length is taken from the map, as with HTTP/1.1",
	"204 with a length":              "204 has no length, as with HTTP/1.1",
	"304 with a length":              "304 has no length, as with HTTP/1.1",
	"304 with a length and a coding": "304 has no length, as with HTTP/1.1",
	"as asked":                       "an asterisk is for OPTIONS",
	"through a mux":                  "an asterisk is for OPTIONS",
	"switching protocols without":    "101 is not sent",
	"switching protocols, of which the connection says nothing": "101 is not sent",
	"body closed":    "a Read behind Close fails with http.ErrBodyReadAfterClose, as with HTTP/1.1",
	"twice":          "a superfluous WriteHeader is logged, as with HTTP/1.1",
	"hints too late": "a superfluous WriteHeader is logged, as with HTTP/1.1",

	"POST /ctl":        byChance,
	"CONNECT /seen":    "the authority of CONNECT is of the grammar",
	"GET /toolong":     "a Write keeps to the length, and the stream is reset",
	"GET /tooshort":    "the stream of a short answer is reset",
	"GET /hijacked":    "the panic names another type",
	"POST /hijacked":   "the panic names another type",
	"POST /afterclose": "a Read behind Close fails with http.ErrBodyReadAfterClose, as with HTTP/1.1",
}

// What a handler does comes to the client, and back to the handler, as with net/http: the handlers
// and requests are those of testdata/written_answers.txt.
func TestHTTP2AnswersLikeNetHTTP(t *testing.T) {
	for _, c := range casesOf(t, "written_answers.txt") {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			var requests []string
			for _, command := range c.Commands {
				for _, r := range requestsOf(command) {
					requests = append(requests, r.text)
				}
			}
			likeOverHTTP2(t, c, requests, decidedOver2[c.Name])
		})
	}
}

// So it is with those of testdata/user_handlers.txt, one by one.
func TestHTTP2SurfaceLikeNetHTTP(t *testing.T) {
	for _, c := range casesOf(t, "user_handlers.txt") {
		for _, command := range c.Commands {
			for _, r := range requestsOf(command) {
				method, rest, _ := strings.Cut(r.text, " ")
				path, _, _ := strings.Cut(rest, " ")
				t.Run(fmt.Sprintf("%.40q", r.text), func(t *testing.T) {
					t.Parallel()
					likeOverHTTP2(t, c, []string{r.text}, decidedOver2[method+" "+path])
				})
			}
		}
	}
}

func casesOf(t *testing.T, file string) []*httpscript.Case {
	t.Helper()
	all, err := httpscript.Read("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
