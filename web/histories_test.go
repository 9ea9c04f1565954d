package web

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/h1"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// This file tries what users of other servers have reported (docs/HUNTS.md), where features meet.

// A list of announced trailers of 900 kB makes no map of 160,000 names of it.
func TestAnnouncedTrailersAreBounded(t *testing.T) {
	var names strings.Builder
	for i := 0; names.Len() < 900_000; i++ {
		fmt.Fprintf(&names, "%x,", i)
	}
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		announced := len(r.Trailer)
		_, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, announced, r.Trailer.Get("last"), err)
	})})
	got := raw(t, f, post+"Connection: close\r\nTransfer-Encoding: chunked\r\nTrailer: "+names.String()+
		"last\r\n\r\n1\r\nx\r\n0\r\nlast: v\r\n\r\n", false)
	if want := fmt.Sprint(exchange.MaxFields, "v", nil); !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A file becomes shorter while it is sent: its answer is seen to be incomplete, and nothing is
// taken for the rest of it.
func TestFilesThatShrink(t *testing.T) {
	const size = 8 << 20
	name := filepath.Join(t.TempDir(), "file")
	set := func(s *Server) {
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/last" {
				return
			}
			f, err := os.Open(name)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			if r.URL.Path == "/served" {
				http.ServeContent(w, r, "a.bin", time.Time{}, f)
				return
			}
			w.Header().Set("Content-Length", fmt.Sprint(size))
			io.Copy(w, f)
		})
	}
	run := func(t *testing.T, c net.Conn, r *record, path string) {
		if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n"+last)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		io.CopyN(io.Discard, resp.Body, 1000)
		if err := os.Truncate(name, 1000); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(resp.Body)
		r.add("complete %t, with an answer inside %t", err == nil, bytes.Contains(rest, []byte("HTTP/1.1")))
	}
	for _, path := range []string{"/served", "/copied"} {
		sameOnBoth(t, set, func(t *testing.T, f *fixture, r *record) { run(t, dial(t, f), r, path) })
		sameBetween(t, serveStandardTLS, serveTLS, set,
			func(t *testing.T, f *fixture, r *record) { run(t, f.dialTLS(t, trusting()), r, path) })
	}
}

// A handler reads the body on one goroutine, which has 100 Continue sent, while it answers on
// another. The interim answer comes before the other, or not at all.
func TestContinueBesideTheAnswer(t *testing.T) {
	for _, dispatch := range []Dispatch{DispatchAuto, DispatchPool, DispatchInline} {
		f := serve(t, &Server{Dispatch: dispatch, Handler: http.HandlerFunc(func(w http.ResponseWriter,
			r *http.Request) {
			var reads sync.WaitGroup
			reads.Go(func() { io.Copy(io.Discard, r.Body) })
			w.Header().Set("A", "b")
			io.WriteString(w, "hello")
			http.NewResponseController(w).Flush()
			reads.Wait()
		})})
		for range 50 {
			got := raw(t, f, post+"Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc"+last, true)
			if rest, found := strings.CutPrefix(got, h1.Continue); found {
				got = rest
			}
			if !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\nA: b\r\n") || strings.Contains(got, " 100 ") {
				t.Fatalf("%v: got %q", dispatch, got)
			}
		}
	}
}

// act does what a word of a script says, as a handler.
func act(w http.ResponseWriter, r *http.Request, word string, notes *record) {
	n, _ := strconv.Atoi(word[1:])
	switch word[0] {
	case 'r':
		got, err := io.ReadFull(r.Body, make([]byte, n))
		notes.add("%s read %d of %d, %v", r.URL, got, n, err)
	case 'a':
		p, err := io.ReadAll(r.Body)
		notes.add("%s read %d, %v, trailer %v", r.URL, len(p), err, r.Trailer)
	case 'w':
		got, err := io.WriteString(w, strings.Repeat("y", n))
		notes.add("%s wrote %d of %d, %v", r.URL, got, n, err)
	case 's':
		w.WriteHeader(n)
	case 'l':
		w.Header().Set("Content-Length", word[1:])
	case 'c':
		w.Header().Set("Connection", "close")
	case 'e':
		w.Header().Set("Transfer-Encoding", "identity")
	case 't':
		w.Header().Set("Trailer", "T")
	case 'p':
		panic(http.ErrAbortHandler)
	}
}

// A history is what one connection is to bring: requests with their scripts, and where what the
// client sends is cut.
type history struct {
	input string
	cuts  []int
	depth int
	Dispatch
	tls bool
}

// historyOf is the one of a seed.
func historyOf(seed uint64) (h history) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	pick := func(all ...string) string { return all[rnd.IntN(len(all))] }
	size := func() int { return []int{0, 1, 3, 10, 100, 2047, 2048, 2049, 4096, 5000, 40_000}[rnd.IntN(11)] }
	for i := range 1 + rnd.IntN(4) {
		var script []string
		for range rnd.IntN(6) {
			word := pick("r", "a", "w", "w", "c", "p", "l", "t", "s", "a", "r", "w", "e")
			switch word {
			case "w":
				word += pick("0", "1", "100", "700") // a larger answer does not wait for the body
			case "r", "l":
				word += fmt.Sprint(size())
			case "s":
				word += pick("200", "204", "304", "404", "500")
			}
			script = append(script, word)
		}
		version, body := pick("1.1", "1.1", "1.1", "1.0"), strings.Repeat("b", size())
		h.input += fmt.Sprintf("%s /%d HTTP/%s\r\nHost: h\r\nScript: %s\r\n",
			pick("GET", "POST", "POST", "PUT", "HEAD"), i, version, strings.Join(script, " "))
		switch kind := rnd.IntN(4); {
		case version == "1.0" && rnd.IntN(2) == 0:
			h.input += "Connection: keep-alive\r\n"
		case rnd.IntN(10) == 0:
			h.input += "Connection: close\r\n"
		case kind == 0:
			body = ""
		case kind == 1 && version == "1.1":
			h.input += "Transfer-Encoding: chunked\r\n\r\n"
			for len(body) > 0 {
				n := 1 + rnd.IntN(len(body))
				h.input += fmt.Sprintf("%x\r\n%s\r\n", n, body[:n])
				body = body[n:]
			}
			h.input += "0\r\n" + pick("", "Tr: 1\r\n") + "\r\n"
			continue
		case kind == 2 && version == "1.1":
			h.input += "Expect: 100-continue\r\n"
		}
		h.input += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	h.input += last
	for range rnd.IntN(6) {
		h.cuts = append(h.cuts, rnd.IntN(len(h.input)))
	}
	slices.Sort(h.cuts)
	h.depth, h.tls = []int{0, 0, 8}[rnd.IntN(3)], rnd.IntN(5) == 0
	h.Dispatch = []Dispatch{DispatchAuto, DispatchPool, DispatchInline}[rnd.IntN(3)]
	return h
}

// play sends the input, and reads until the server ends.
func (h *history) play(c net.Conn) (got string) {
	var sends sync.WaitGroup
	sends.Go(func() {
		at := 0
		for _, cut := range append(h.cuts, len(h.input)) {
			if _, err := io.WriteString(c, h.input[at:cut]); err != nil {
				return
			}
			at = cut
			time.Sleep(time.Millisecond) // most cuts are seen as such; none has to be for the result
		}
	})
	p, _ := io.ReadAll(c) // net/http resets where it has not read all
	c.Close()
	sends.Wait()
	return string(p)
}

var manyOf = regexp.MustCompile(`y{5,}`)

// Clients pipeline all kinds of requests in pieces, and handlers read, write and end in all ways.
// Both get what they would get with net/http, however requests are dispatched.
func TestHistoriesLikeNetHTTP(t *testing.T) {
	for seed := range uint64(soak.Size(t, 60, 3000)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			h := historyOf(seed)
			var notes *record // of the handlers of the server that runs
			set := func(s *Server) {
				mine := new(record)
				notes = mine
				s.PipelineDepth, s.Dispatch = h.depth, h.Dispatch
				s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					for _, word := range strings.Fields(r.Header.Get("Script")) {
						act(w, r, word, mine)
					}
					w.Header().Set("T", "v")
				})
			}
			run := func(c net.Conn, r *record) {
				r.answers(h.play(c), methodsOf(h.input)...)
				if h.depth == 0 { // else they run at the same time
					notes.mu.Lock()
					r.lines = append(r.lines, notes.lines...)
					notes.mu.Unlock()
				}
				for i, l := range r.lines {
					r.lines[i] = manyOf.ReplaceAllStringFunc(l, func(s string) string { return fmt.Sprint(len(s)) })
				}
			}
			standard, ours := serveStandard, serve
			dialled := func(t *testing.T, f *fixture) net.Conn { return dial(t, f) }
			if h.tls {
				standard, ours = serveStandardTLS, serveTLS
				dialled = func(t *testing.T, f *fixture) net.Conn { return f.dialTLS(t, trusting()) }
			}
			apart := differs(t, standard, ours, set,
				func(t *testing.T, f *fixture, r *record) { run(dialled(t, f), r) })
			if apart != "" {
				t.Errorf("depth %d, %v, TLS %t, cut at %v: %.3000q\n%s", h.depth, h.Dispatch, h.tls, h.cuts, h.input,
					apart)
			}
		})
	}
}
