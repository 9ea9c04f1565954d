package web

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// expecting are heads whose clients wait for 100 Continue before they send the body, "hello", in
// chunks or not.
var expecting = []struct{ name, head, body string }{
	{"length", post + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n", "hello"},
	{"chunked", post + "Expect: 100-Continue\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"},
	{"close", post + "Expect: 100-continue\r\nConnection: close\r\nContent-Length: 5\r\n\r\n", "hello"},
	{"large", post + "Expect: 100-continue\r\nContent-Length: 1000000\r\n\r\n", strings.Repeat("hello", 200000)},
	{"nothing to come", post + "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n", ""},
	{"no length", post + "Expect: 100-continue\r\n\r\n", ""},
	{"HTTP/1.0", "POST / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n" +
		"Content-Length: 5\r\n\r\nhello", ""},
}

func readAll(r *http.Request, notes *record) {
	p, err := io.ReadAll(r.Body)
	note(notes, "read", len(p), err)
}

// expected are handlers of such requests.
var expected = []writing{
	{name: "200 unread", handle: status(200, "ok")},
	{name: "413 unread", handle: status(413, "too much")},
	{name: "417 unread", handle: status(417, "no")},
	{name: "nothing", handle: func(http.ResponseWriter, *http.Request, *record) {}},
	{name: "read", handle: func(w http.ResponseWriter, r *http.Request, notes *record) { readAll(r, notes) }},
	{name: "some read", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		n, err := io.ReadFull(r.Body, make([]byte, 3))
		note(notes, "read", n, err)
		write(w, notes, "ok")
	}},
	{name: "nothing read by a read", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		r.Body.Read(nil)
		write(w, notes, "ok")
	}},
	{name: "100, then read", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.WriteHeader(100)
		readAll(r, notes)
		write(w, notes, "ok")
	}},
	{name: "100 unread", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.WriteHeader(100)
		write(w, notes, "ok")
	}},
	{name: "hints, then read", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.WriteHeader(103)
		readAll(r, notes)
		write(w, notes, "ok")
	}},
	{name: "read behind a flush", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.WriteHeader(201)
		w.(http.Flusher).Flush()
		readAll(r, notes)
		write(w, notes, "ok")
	}},
	{name: "closed", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		r.Body.Close()
		readAll(r, notes)
		write(w, notes, "ok")
	}},
	{name: "read to a limit", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		r.Body = http.MaxBytesReader(w, r.Body, 3)
		readAll(r, notes)
		w.WriteHeader(413)
	}},
	{name: "panic", handle: func(http.ResponseWriter, *http.Request, *record) { panic("unread") }},
	{name: "hijack", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		nc, rw, err := http.NewResponseController(w).Hijack()
		note(notes, "hijack", err)
		if err != nil {
			return
		}
		io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		p, err := io.ReadAll(rw)
		note(notes, "then", len(p), err)
		nc.Close()
	}},
}

// headed is what a server has sent, with the fields of each head in alphabetical order and without
// what chance has chosen.
func headed(sent string) string {
	parts := strings.SplitAfter(regexp.MustCompile(`Date: [^\r]*`).ReplaceAllString(sent, "Date: some"), "\r\n\r\n")
	for i, part := range parts {
		if lines := strings.Split(strings.TrimSuffix(part, "\r\n\r\n"), "\r\n"); len(lines) > 1 {
			slices.Sort(lines[1:])
			parts[i] = strings.Join(lines, "\r\n") + "\r\n\r\n"
		}
	}
	return strings.Join(parts, "")
}

// A patience is how a client goes on that expects 100 Continue.
type patience string

const (
	patient  patience = "patient"  // sends the body when it is told to; else its end
	stubborn patience = "stubborn" // sends it when any head has come
	gone     patience = "gone"     // sends its end at once
	hasty    patience = "hasty"    // sends the body with the head
)

// continued sends a head and what follows it, and records what comes.
func continued(t *testing.T, f *fixture, r *record, head, body string, p patience) {
	c := dial(t, f)
	in := bufio.NewReader(c)
	if p == hasty {
		head += body + last
	}
	io.WriteString(c, head)
	if p == gone {
		closeWrite(c)
	}
	var got strings.Builder
	for line := ""; line != "\r\n"; {
		var err error
		if line, err = in.ReadString('\n'); err != nil {
			r.add("%s", err)
			break
		}
		got.WriteString(line)
	}
	if p != hasty && (strings.HasPrefix(got.String(), "HTTP/1.1 100 ") || p == stubborn) {
		io.WriteString(c, body+last)
	}
	closeWrite(c)
	rest, _ := io.ReadAll(in) // a reset may follow the end of an answer that says close
	got.Write(rest)
	all := headed(got.String())
	if p == gone { // behind such a body we say that the connection closes
		all = strings.ReplaceAll(all, "\r\nConnection: close", "")
	}
	if strings.HasPrefix(all, "HTTP/1.0") { // which knows no interim answers, and to which nothing says close
		all = strings.NewReplacer("HTTP/1.0 100 Continue\r\n\r\n", "", "HTTP/1.0 103 Early Hints\r\n\r\n", "",
			"\r\nConnection: close", "").Replace(all)
	}
	r.add("%.90q %s: %q", head, p, all)
}

// alike reports whether net/http can be compared. It waits for bodies that it has not asked for
// when their handler closes them or panics; it keeps a connection of HTTP/1.0 with an unread one;
// and a hijacker gets chunks as they came.
func alike(handler, head string, p patience) bool {
	switch handler {
	case "panic":
		return p == gone
	case "closed":
		return p == gone || p == hasty && head != "large"
	case "hijack":
		return p != hasty || head != "chunked"
	case "413 unread":
		return head != "HTTP/1.0"
	}
	return true
}

// A client that expects 100 Continue gets the same from net/http, whatever the handler does.
func TestExpectLikeNetHTTP(t *testing.T) {
	for _, h := range expected {
		for _, e := range expecting {
			t.Run(h.name+"/"+e.name, func(t *testing.T) {
				t.Parallel()
				var notes *record
				sameOnBoth(t, func(s *Server) {
					mine := new(record)
					notes = mine
					s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.URL.Path == "/last" {
							io.WriteString(w, "last")
							return
						}
						h.handle(w, r, mine)
					})
				}, func(t *testing.T, f *fixture, r *record) {
					for _, p := range []patience{patient, stubborn, gone, hasty} {
						if !alike(h.name, e.name, p) {
							continue
						}
						continued(t, f, r, e.head, e.body, p)
					}
					r.add("handler: %s", notes)
					r.add("log: %s", firstLines(f.log.String()))
				})
			})
		}
	}
}

// A client with an unknown expectation gets the same bytes, and then the end of the connection.
func TestUnknownExpectationLikeNetHTTP(t *testing.T) {
	date := regexp.MustCompile(`Date: [^\r]*`)
	for _, request := range []string{
		get + "Expect: tea\r\n\r\n", "HEAD / HTTP/1.1\r\nHost: h\r\nExpect: tea\r\n\r\n",
		get + end + get + "Expect: tea\r\n\r\n" + last,
		"GET / HTTP/1.0\r\nExpect: tea\r\n\r\n", "HEAD / HTTP/1.0\r\nConnection: keep-alive\r\nExpect: tea\r\n\r\n",
		post + "Expect: tea\r\nContent-Length: 5\r\n\r\nhello", post +
			"Expect: tea\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	} {
		sameOnBoth(t, func(s *Server) { s.Handler = http.NotFoundHandler() },
			func(t *testing.T, f *fixture, r *record) {
				got := raw(t, f, request, false)
				at := strings.LastIndex(got, "HTTP/1.")
				r.add("%q: %d answers, %q", request, strings.Count(got, "HTTP/1."),
					date.ReplaceAllString(got[max(at, 0):], "Date: some"))
			})
	}
}

// The last bytes of a body come with its end, as they do from net/http, and so does nothing.
func TestLastReadLikeNetHTTP(t *testing.T) {
	const chunked = "Transfer-Encoding: chunked\r\n\r\n"
	for _, rest := range []string{"Content-Length: 5\r\n\r\nhello", chunked + "5\r\nhello\r\n0\r\nT: v\r\n\r\n",
		chunked + "0\r\nT: v\r\n\r\n"} {
		sameOnBoth(t, func(s *Server) {
			s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for _, size := range []int{0, 2, 0, 3, 0, 1} {
					n, err := r.Body.Read(make([]byte, size))
					fmt.Fprintln(w, n, err, r.Trailer)
				}
			})
		}, func(t *testing.T, f *fixture, r *record) {
			_, answer, _ := strings.Cut(raw(t, f, post+"Connection: close\r\n"+rest, false), "\r\n\r\n")
			r.add("%s", answer)
		})
	}
}
