package web

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// This file holds the server against net/http's with the same bytes: what each answers, which
// requests its handler sees, with every field, and whether the connection goes on.
// corpora_inputs_test.go and testdata have the bytes.

// probe follows each input, so that it shows where the next request begins.
const probe = "GET /probe HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n"

// An answer is what a client gets for one request.
type answer struct {
	status string // "200", "400 close"
	body   string // of a refusal: ours says why
	seen   string // the request as the handler saw it; "" if it did not
}

// An outcome is what became of one connection.
type outcome struct {
	answers  []answer
	requests []string // as the handler saw them, also those without an answer
}

func (o *outcome) at(i int) answer {
	if i < len(o.answers) {
		return o.answers[i]
	}
	return answer{}
}

func (o *outcome) String() (s string) {
	for _, a := range o.answers {
		s += fmt.Sprintf("\n\t\t%s %.150q %s", a.status, a.body, a.seen)
	}
	return s
}

// A witness is a handler that remembers the requests of each connection.
type witness struct {
	mu   sync.Mutex
	seen map[string][]string
}

func (h *witness) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := fmt.Sprintf("%s %q %s %d.%d host %q url %q length %d %q close %t", r.Method, r.RequestURI, r.Proto,
		r.ProtoMajor, r.ProtoMinor, r.Host,
		r.URL.String(), r.ContentLength, r.TransferEncoding, r.Close)
	fields := sorted(r.Header)
	body, err := io.ReadAll(r.Body)
	line := fmt.Sprintf("%s fields %s body %q failed %t trailer %s", head, fields, body, err != nil, sorted(r.Trailer))
	h.mu.Lock()
	h.seen[r.RemoteAddr] = append(h.seen[r.RemoteAddr], line)
	h.mu.Unlock()
	w.Header().Set("Seen", line)
}

func sorted(h http.Header) string {
	var lines []string
	for name, values := range h {
		lines = append(lines, fmt.Sprintf("%s=%q", name, values))
	}
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

func (h *witness) of(addr string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen[addr]
}

func (h *witness) forget(addr string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.seen, addr)
}

// A subject is a server that inputs are tried on.
type subject struct {
	witness
	addr  string
	peers peers
}

// A version is how both servers are asked.
type version struct {
	protocols *http.Protocols
	try       func(s *subject, t *testing.T, input string) *outcome
}

var overHTTP1 = version{nil, (*subject).try}

// subjects are this server and net/http's.
func subjects(t *testing.T, v version) (ours, std *subject) {
	ours, std = &subject{}, &subject{}
	ours.seen, std.seen = map[string][]string{}, map[string][]string{}
	ours.addr = serve(t, &Server{Handler: ours, Protocols: v.protocols}).addr
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: std, ErrorLog: log.New(io.Discard, "", 0), Protocols: v.protocols}
	std.addr = ln.Addr().String()
	go s.Serve(ln)
	t.Cleanup(func() { s.Close() })
	return ours, std
}

// try sends input and the probe, ends its side, and waits for the end of the other.
func (s *subject) try(t *testing.T, input string) *outcome {
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s.forget(c.LocalAddr().String()) // the earlier owner of the port
	c.SetDeadline(time.Now().Add(hangs))
	io.WriteString(c, input+probe)
	c.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("%q: %v after %q", input, err, got)
	}
	o := &outcome{requests: s.of(c.LocalAddr().String())}
	for r := bufio.NewReader(bytes.NewReader(got)); ; {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			if _, err := r.Peek(1); err == nil {
				t.Errorf("%q: the answers are out of order: %q", input, got)
			}
			return o
		}
		body, _ := io.ReadAll(resp.Body)
		a := answer{fmt.Sprint(resp.StatusCode), strings.TrimSpace(string(body)), resp.Header.Get("Seen")}
		if resp.Close {
			a.status += " close"
		}
		o.answers = append(o.answers, a)
	}
}

// A difference is where two outcomes part.
type difference struct {
	input     string
	ours, std answer
}

// apart returns the first difference between two outcomes, or nil.
func apart(input string, ours, std *outcome) *difference {
	for i := range max(len(ours.answers), len(std.answers)) {
		d := difference{input, ours.at(i), std.at(i)}
		if d.ours.status != d.std.status || d.ours.seen != d.std.seen {
			return &d
		}
	}
	if !slices.Equal(ours.requests, std.requests) {
		return &difference{input, answer{seen: fmt.Sprint(ours.requests)}, answer{seen: fmt.Sprint(std.requests)}}
	}
	return nil
}

// A decision is a kind of difference from net/http that is on purpose.
type decision struct {
	why   string // as the documentation of this package, or of internal/h1, has it
	is    func(d *difference) bool
	shown int // how many inputs have shown it
}

// differ runs all inputs on both servers.
func differ(t *testing.T, v version, inputs []string, decisions []*decision) {
	ours, std := subjects(t, v)
	var mu sync.Mutex
	alike, shown := 0, 0
	each(inputs, func(input string) {
		a, b := v.try(ours, t, input), v.try(std, t, input)
		d := apart(input, a, b)
		mu.Lock()
		defer mu.Unlock()
		if d == nil {
			alike++
			return
		}
		for _, known := range decisions {
			if known.is(d) {
				known.shown++
				return
			}
		}
		if shown++; shown > 20 {
			t.Fail()
			return // enough
		}
		t.Errorf("%.300q\n\tours%v\n\tnet/http%v", input, a, b)
	})
	t.Logf("%d inputs, %d with the same outcome", len(inputs), alike)
	if alike < len(inputs)/5 {
		t.Errorf("only %d of %d inputs have the same outcome: this shows nothing", alike, len(inputs))
	}
}

// each calls f for all inputs, some at a time.
func each(inputs []string, f func(input string)) {
	var all sync.WaitGroup
	next := make(chan string)
	for range 8 {
		all.Go(func() {
			for input := range next {
				f(input)
			}
		})
	}
	for _, input := range inputs {
		next <- input
	}
	close(next)
	all.Wait()
}
