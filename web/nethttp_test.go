package web

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// This file has what tests need that run on net/http's server first, and then expect the same here.

const (
	h10 = "GET / HTTP/1.0\r\nHost: h\r\n"
	end = "\r\n"
	// last asks for one more answer, and for the end of the connection.
	last = "GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
)

// A record is what a test has seen.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (r *record) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "; ")
}

// sameOnBoth runs a test on net/http's server and on this one, each with the settings that set
// makes, and compares what it records. The fixture of net/http's server is of use for its address
// and log alone.
func sameOnBoth(t *testing.T, set func(*Server), run func(t *testing.T, f *fixture, r *record)) {
	t.Helper()
	sameBeside(t, serve, set, run)
}

// sameBeside is sameOnBoth with another way to begin.
func sameBeside(t *testing.T, begin func(testing.TB, *Server) *fixture, set func(*Server),
	run func(t *testing.T, f *fixture, r *record)) {
	t.Helper()
	sameBetween(t, serveStandard, begin, set, run)
}

// sameBetween is sameOnBoth with other ways to begin for both.
func sameBetween(t *testing.T, standard, ours func(testing.TB, *Server) *fixture, set func(*Server),
	run func(t *testing.T, f *fixture, r *record)) {
	t.Helper()
	if apart := differs(t, standard, ours, set, run); apart != "" {
		t.Error(apart)
	}
}

// differs says where the two records part, or "".
func differs(t *testing.T, standard, ours func(testing.TB, *Server) *fixture, set func(*Server),
	run func(t *testing.T, f *fixture, r *record)) string {
	t.Helper()
	both := [2]record{}
	for i, begin := range []func(testing.TB, *Server) *fixture{standard, ours} {
		s := new(Server)
		set(s)
		run(t, begin(t, s), &both[i])
	}
	want, got := both[0].lines, both[1].lines
	for i := range max(len(want), len(got)) {
		if a, b := line(want, i), line(got, i); a != b {
			return fmt.Sprintf("after %.100s\nnet/http: %s\nhere:     %s", line(want, i-1), a, b)
		}
	}
	return ""
}

func line(of []string, i int) string {
	if i >= 0 && i < len(of) {
		return of[i]
	}
	return "nothing"
}

// serveStandard serves with net/http what s says.
func serveStandard(t testing.TB, s *Server) *fixture {
	t.Helper()
	return serveStandardOn(t, s, func(ln net.Listener) net.Listener { return ln })
}

// serveStandardOn is serveStandard on what wrap makes of a listener.
func serveStandardOn(t testing.TB, s *Server, wrap func(net.Listener) net.Listener) *fixture {
	t.Helper()
	f := &fixture{Server: s, log: new(lockedLog)}
	std := s.standard()
	if std.ErrorLog == nil {
		std.ErrorLog = log.New(f.log, "", 0)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = ln.Addr().String()
	var ended sync.WaitGroup
	ended.Go(func() { std.Serve(wrap(ln)) })
	t.Cleanup(func() { std.Close(); ended.Wait() })
	return f
}

// answers adds to the record what came of requests of these methods: status, fields in order of
// their names, body as decoded, trailer.
func (r *record) answers(got string, methods ...string) {
	in := bufio.NewReader(strings.NewReader(got))
	for len(methods) > 0 {
		resp, err := http.ReadResponse(in, &http.Request{Method: methods[0]})
		if err != nil {
			r.add("no answer: %v", err)
			return
		}
		body, err := io.ReadAll(resp.Body)
		if resp.Header.Get("Date") != "" {
			resp.Header.Set("Date", "some")
		}
		r.add("%s %s length %d %q close %t fields %s body %.2000q %v trailer %s", resp.Proto, resp.Status,
			resp.ContentLength, resp.TransferEncoding, resp.Close,
			plain(sorted(resp.Header)), plain(string(body)), err, sorted(resp.Trailer))
		if resp.StatusCode >= 200 || resp.StatusCode == 101 {
			methods = methods[1:]
		}
	}
	if rest, _ := io.ReadAll(in); len(rest) > 0 {
		r.add("and then %.100q", rest)
	}
}

var chance = regexp.MustCompile(`[0-9a-f]{60}|127\.0\.0\.1:\d+|0x[0-9a-f]+|goroutine \d+`)

// plain is s without what chance and the system have chosen.
func plain(s string) string { return chance.ReplaceAllString(s, "#") }

// sent sends request as it is and returns all that comes. Unlike raw, it takes any end for the end.
func sent(t testing.TB, f *fixture, request string, fin bool) (string, error) {
	t.Helper()
	c := dial(t, f)
	io.WriteString(c, request)
	if fin {
		closeWrite(c)
	}
	answer, err := io.ReadAll(c)
	c.Close() // or the server waits for that
	return string(answer), err
}

func closeWrite(c net.Conn) { c.(*net.TCPConn).CloseWrite() }

// methodsOf are the methods of pipelined requests.
func methodsOf(request string) (methods []string) {
	for _, m := range regexp.MustCompile(`([A-Z]+) \S+ HTTP/1`).FindAllStringSubmatch(request, -1) {
		methods = append(methods, m[1])
	}
	return methods
}

// firstLines is a log without stacks.
func firstLines(s string) string {
	var lines []string
	for line := range strings.SplitSeq(s, "\n") {
		if strings.HasPrefix(line, "http: ") {
			lines = append(lines, plain(line))
		}
	}
	return strings.Join(lines, "; ")
}
