package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

const (
	h10 = "GET / HTTP/1.0\r\nHost: h\r\n"
	end = "\r\n"
	// last asks for one more answer, and for the end of the connection.
	last = "GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
)

// A writing is a handler's way to answer; notes are what it learns by it.
type writing struct {
	name     string
	handle   func(w http.ResponseWriter, r *http.Request, notes *record)
	requests []string // nil: GET, HEAD, GET of HTTP/1.0, HTTP/1.0 with keep-alive
}

// all are requests that are answered in different ways, each with one behind it.
var all = []string{
	get + end + last,
	"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n" + last,
	h10 + end,
	h10 + "Connection: keep-alive\r\n\r\n" + last,
	get + "Connection: close\r\n\r\n",
	post + "Content-Length: 5\r\n\r\nhello" + last,
	chunked + "5\r\nhello\r\n0\r\n\r\n" + last,
}

// of11 are those whose client understands 1xx.
var of11 = []string{all[0], all[1], all[4], all[5], all[6]}

func note(notes *record, what string, args ...any) {
	for i, a := range args {
		if err, ok := a.(error); ok {
			args[i] = plain(err.Error())
		}
	}
	notes.add(what+": "+strings.Repeat("%v ", len(args)), args...)
}

func write(w http.ResponseWriter, notes *record, s string) {
	n, err := io.WriteString(w, s)
	note(notes, "write", n, err)
}

func status(code int, body string) func(http.ResponseWriter, *http.Request, *record) {
	return func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.WriteHeader(code)
		write(w, notes, body)
	}
}

func fields(pairs ...string) func(http.ResponseWriter, *http.Request, *record) {
	return func(w http.ResponseWriter, r *http.Request, notes *record) {
		for i := 0; i < len(pairs); i += 2 {
			w.Header()[pairs[i]] = append(w.Header()[pairs[i]], pairs[i+1])
		}
		write(w, notes, "hello")
	}
}

// set is for values that are not to be sent: none at all.
func set(name string, values []string) func(http.ResponseWriter, *http.Request, *record) {
	return func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header()[name] = values
		write(w, notes, "hello")
	}
}

var writings = []writing{
	{name: "nothing", handle: func(http.ResponseWriter, *http.Request, *record) {}},
	{name: "an empty write", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		write(w, notes, "")
	}},
	{name: "200", handle: status(200, "hello")},
	{name: "204 with a body", handle: status(204, "hello")},
	{name: "304 with a body", handle: status(304, "hello")},
	{name: "304 with a length", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("Content-Length", "7")
		status(304, "")(w, r, notes)
	}},
	{name: "304 with a length and a coding", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("Content-Length", "7")
		w.Header().Set("Transfer-Encoding", "chunked")
		status(304, "")(w, r, notes)
	}},
	{name: "a length that is none", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("Content-Length", "seven")
		w.WriteHeader(200)
		note(notes, "left of it", w.Header())
		w.(http.Flusher).Flush()
	}, requests: []string{get + end + last}},
	{name: "204 with a length", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("Content-Length", "7")
		status(204, "")(w, r, notes)
	}},
	{name: "205 with a body", handle: status(205, "hello")},
	{name: "299", handle: status(299, "hello")},
	{name: "413", handle: status(413, "too much")},
	{name: "999", handle: status(999, "hello")},
	{name: "no sniffing", handle: fields("Content-Type", "")},
	{name: "a type", handle: fields("Content-Type", "text/css")},
	{name: "an encoding", handle: fields("Content-Encoding", "gzip")},
	{name: "nosniff", handle: fields("X-Content-Type-Options", "nosniff")},
	{name: "a date", handle: fields("Date", "Thu, 01 Jan 1970 00:00:00 GMT")},
	{name: "no date", handle: func(w http.ResponseWriter, r *http.Request, notes *record) { w.Header()["Date"] = nil }},
	{name: "close", handle: fields("Connection", "close")},
	{name: "keep-alive", handle: fields("Connection", "keep-alive")},
	{name: "upgrade that is none", handle: fields("Connection", "upgrade", "Upgrade", "x")},
	{name: "fields of all kinds", handle: fields("X", "1", "X", "2", "x-lower", "3", "Bad Name", "4", "Evil",
		"a\r\nInjected: b", "Empty", "", "Space", "  c  ", "High", "\xff")},
	{name: "too little of the length", handle: fields("Content-Length", "10")},
	{name: "too much for the length", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("Content-Length", "3")
		write(w, notes, "ab")
		write(w, notes, "cd")
		write(w, notes, "e")
	}},
	{name: "a length but no body", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("Content-Length", "10")
	}},
	{name: "a length of nothing", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("Content-Length", "0")
		write(w, notes, "x")
	}},
	{name: "flushed", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		write(w, notes, "a")
		note(notes, "flush", http.NewResponseController(w).Flush())
		write(w, notes, "b")
	}},
	{name: "flushed empty", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.(http.Flusher).Flush()
	}},
	{name: "flushed with a length", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("Content-Length", "2")
		w.(http.Flusher).Flush()
		write(w, notes, "ab")
	}},
	{name: "large", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		for range 10 {
			write(w, notes, strings.Repeat("x", 1000))
		}
	}},
	{name: "just what is gathered", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		write(w, notes, strings.Repeat("x", 2048))
	}},
	{name: "a byte more", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		write(w, notes, strings.Repeat("x", 2049))
	}},
	{name: "header changed too late", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("A", "early")
		w.WriteHeader(200)
		w.Header().Set("A", "late")
		w.Header().Set("B", "late")
		write(w, notes, "hello")
	}},
	{name: "trailers", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("Trailer", "A, B")
		w.Header().Add("Trailer", "C, Content-Length")
		write(w, notes, "hello")
		w.Header().Set("A", "1")
		w.Header().Set("C", "3")
		w.Header().Set("D", "4")
		w.Header().Set(http.TrailerPrefix+"E", "5")
	}},
	{name: "trailers that may not be", handle: fields("Trailer", "Authorization, Content-Type", "Trailer", "If-Match")},
	{name: "trailers of no name", handle: fields("Trailer", "")},
	{name: "no trailers", handle: set("Trailer", nil)},
	{name: "no connection field", handle: set("Connection", nil)},
	{name: "no connection field, with a length", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header()["Connection"] = []string{}
		w.Header().Set("Content-Length", "5")
		write(w, notes, "hello")
	}},
	{name: "an empty connection field", handle: fields("Connection", "")},
	{name: "no length", handle: set("Content-Length", nil)},
	{name: "no coding", handle: set("Transfer-Encoding", nil)},
	{name: "no type", handle: set("Content-Type", nil)},
	{name: "no encoding", handle: set("Content-Encoding", nil)},
	{name: "trailers without body", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("Trailer", "A")
		w.WriteHeader(200)
		w.Header().Set("A", "1")
	}},
	{name: "a trailer prefix alone", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		write(w, notes, "hello")
		w.Header().Set(http.TrailerPrefix+"A", "1")
	}, requests: []string{h10 + end, h10 + "Connection: keep-alive\r\n\r\n" + last}},
	{name: "a trailer prefix after a flush", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.(http.Flusher).Flush()
		w.Header().Set(http.TrailerPrefix+"A", "1")
	}},
	{name: "early hints", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("Link", "</a>; rel=preload")
		w.WriteHeader(103)
		w.Header().Set("Link", "</b>; rel=preload")
		w.Header().Set("Content-Length", "5")
		w.WriteHeader(103)
		w.Header().Del("Link")
		write(w, notes, "hello")
	}, requests: of11},
	{name: "processing", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.WriteHeader(102)
		w.WriteHeader(100)
		w.WriteHeader(150)
		write(w, notes, "hello")
	}, requests: of11},
	{name: "hints too late", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		write(w, notes, "hello")
		w.WriteHeader(103)
	}},
	{name: "switching protocols without", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("Connection", "upgrade")
		w.Header().Set("Upgrade", "x")
		status(101, "hello")(w, r, notes)
	}},
	{name: "switching protocols, of which the connection says nothing",
		handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
			w.Header().Set("Connection", "x")
			w.Header().Set("Upgrade", "x")
			w.WriteHeader(101)
		}, requests: []string{get + "Connection: close\r\n\r\n", h10 + end}},
	{name: "twice", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.WriteHeader(201)
		w.WriteHeader(202)
		write(w, notes, "hello")
		w.WriteHeader(203)
	}},
	{name: "bad status", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		defer func() { note(notes, "panic", recover()) }()
		w.WriteHeader(1000)
	}},
	{name: "panic", handle: func(http.ResponseWriter, *http.Request, *record) { panic("before") }},
	{name: "panic after a write", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		write(w, notes, "hello")
		panic("behind")
	}},
	{name: "panic after a flush", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		write(w, notes, "hello")
		w.(http.Flusher).Flush()
		panic(errors.New("behind"))
	}},
	{name: "abort", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		panic(http.ErrAbortHandler)
	}},
	{name: "abort after a flush", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		write(w, notes, "hello")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}},
	{name: "nil panic", handle: func(w http.ResponseWriter, r *http.Request, notes *record) { panic(nil) }},
	{name: "an error", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("Content-Length", "1")
		w.Header().Set("Etag", "x")
		http.Error(w, "no", 404)
	}},
	{name: "moved", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		http.Redirect(w, r, "/else?a=b", http.StatusFound)
	}},
	{name: "body read behind the answer", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		write(w, notes, "hello")
		p, err := io.ReadAll(r.Body)
		note(notes, "read", string(p), err)
	}},
	{name: "full duplex", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		note(notes, "full duplex", http.NewResponseController(w).EnableFullDuplex())
		write(w, notes, "hello")
		w.(http.Flusher).Flush()
		p, err := io.ReadAll(r.Body)
		note(notes, "read", string(p), err)
	}},
	{name: "body closed", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		note(notes, "close", r.Body.Close())
		_, err := r.Body.Read(make([]byte, 1))
		note(notes, "read", err != nil)
		write(w, notes, "hello")
	}},
	{name: "body echoed", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		n, err := io.Copy(w, r.Body)
		note(notes, "copied", n, err)
	}},
	{name: "body at most 3", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		r.Body = http.MaxBytesReader(w, r.Body, 3)
		p, err := io.ReadAll(r.Body)
		note(notes, "read", string(p), err)
		if err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		}
	}},
	{name: "a deadline that has passed", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		c := http.NewResponseController(w)
		note(notes, "read", c.SetReadDeadline(time.Now().Add(-time.Second)))
		note(notes, "none", c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{}))
		note(notes, "later", c.SetReadDeadline(time.Now().Add(time.Hour)),
			c.SetWriteDeadline(time.Now().Add(time.Hour)))
		write(w, notes, "hello")
	}},
	{name: "in time", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("A", "b")
			status(201, "hello")(w, r, notes)
			_, ok := r.Context().Deadline()
			note(notes, "has a deadline", ok)
		}), time.Hour, "late").ServeHTTP(w, r)
	}},
	{name: "too late", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		answered, gone := make(chan struct{}), make(chan error, 1)
		http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("A", "b")
			<-answered // a TimeoutHandler that is held up finds both ended, the time and this, and chance decides
			_, err := io.WriteString(w, "hello")
			gone <- errors.Join(err, context.Cause(r.Context()))
		}), 5*time.Millisecond, "late").ServeHTTP(w, r)
		close(answered)
		note(notes, "handler", errors.Is(<-gone, context.DeadlineExceeded))
	}},
	{name: "content", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		w.Header().Set("Etag", `"e"`)
		http.ServeContent(w, r, "a.txt", time.Unix(1e9, 0), strings.NewReader("0123456789"))
	}, requests: ranges},
	{name: "content of a file", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		f, err := os.Open("testdata/requests.txt")
		if err != nil {
			panic(err)
		}
		defer f.Close()
		http.ServeContent(w, r, "a.txt", time.Unix(1e9, 0), io.NewSectionReader(f, 0, 1000))
	}, requests: ranges},
	{name: "a file", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		http.ServeFile(w, r, "testdata/requests.txt")
	},
		requests: []string{get + "Range: bytes=5-9" + end + end + last,
			get + "Range: bytes=5-9,20-29" + end + end + last, "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n" + last}},
	{name: "as asked", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		write(w, notes, fmt.Sprintf("%s %s %q %s %v %t", r.Method, r.URL, r.Host, r.RequestURI, r.Header, r.Close))
	}, requests: []string{
		"GET http://other:81/a?b HTTP/1.1\r\nHost: h\r\n\r\n" + last, "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n" + last,
		"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
		"CONNECT a:1 HTTP/1.0\r\n\r\n", "GET * HTTP/1.1\r\nHost: h\r\n\r\n" + last,
		"OPTIONS / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab" + last,
		"TRACE / HTTP/1.1\r\nHost: h\r\n\r\n" + last,
		"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n" + last,
	}},
	{name: "options", handle: fields("The-Handler", "is asked"), requests: func() (requests []string) {
		const head = "OPTIONS * HTTP/1.1\r\nHost: h\r\n"
		for _, n := range []int{0, 3, 4095, 4096, 4097, 9000} {
			body, behind := strings.Repeat("x", n), last
			if n > 4096 {
				// net/http closes with that unread, which resets the connection when it has waited
				// for half a second
				behind = ""
			}
			requests = append(requests, fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, n, body)+behind,
				fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", head, n, body))
			if n > 0 {
				requests[len(requests)-1] += "0\r\n\r\n"
			}
			requests[len(requests)-1] += behind
		}
		return append(requests, head+"Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhello"+last,
			strings.Replace(head, "1.1", "1.0", 1)+end+last)
	}()},
	{name: "through a mux", handle: func(w http.ResponseWriter, r *http.Request, notes *record) {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /item/{id}/{rest...}", func(w http.ResponseWriter, r *http.Request) {
			write(w, notes, fmt.Sprintf("%s %q %q", r.Pattern, r.PathValue("id"), r.PathValue("rest")))
		})
		mux.ServeHTTP(w, r)
	}, requests: []string{
		"GET /item/5/a/b HTTP/1.1\r\nHost: h\r\n\r\n" + last, "GET /item/%2f/%20 HTTP/1.1\r\nHost: h\r\n\r\n" + last,
		"POST /item/5/a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n" + last,
		"GET //item/../x HTTP/1.1\r\nHost: h\r\n\r\n" + last, "GET * HTTP/1.1\r\nHost: h\r\n\r\n" + last,
		"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
	}},
}

// ranges ask for parts.
var ranges = func() (requests []string) {
	for _, f := range []string{
		"", "Range: bytes=2-4", "Range: bytes=-3", "Range: bytes=7-", "Range: bytes=20-", "Range: bytes=0-0,-1",
		"Range: bytes=1-2,4-5", "Range: bytes=5-2", "Range: lines=1-2", "Range: bytes=a-b",
		"Range: bytes=2-4\r\nIf-Range: \"e\"", "Range: bytes=2-4\r\nIf-Range: \"f\"",
		"Range: bytes=2-4\r\nIf-Range: Sun, 09 Sep 2001 01:46:40 GMT",
		"Range: bytes=2-4\r\nIf-Range: Sun, 09 Sep 2001 01:46:41 GMT",
		"If-None-Match: \"e\"", "If-None-Match: \"f\"", "If-Match: \"f\"",
		"If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT", "If-Unmodified-Since: Sun, 09 Sep 2000 01:46:40 GMT",
		"Range: bytes=" + strings.Repeat("0-0,", 50) + "1-1",
	} {
		for _, method := range []string{"GET", "HEAD"} {
			request := method + " / HTTP/1.1\r\nHost: h\r\n" + f + end + end + last
			requests = append(requests, strings.Replace(request, "Host: h\r\n\r\n\r\n", "Host: h\r\n\r\n", 1))
		}
	}
	return requests
}()

// What a handler does comes to the client, and back to the handler, as with net/http.
func TestAnswersLikeNetHTTP(t *testing.T) {
	for _, c := range writings {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			requests := c.requests
			if requests == nil {
				requests = all
			}
			var notes *record // of the handlers of the server that runs
			sameOnBoth(t, func(s *Server) {
				mine := new(record)
				notes = mine
				s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/last" {
						io.WriteString(w, "last")
						return
					}
					c.handle(w, r, mine)
				})
			}, func(t *testing.T, f *fixture, r *record) {
				for _, request := range requests {
					got, err := sent(t, f, request, strings.HasPrefix(request, "CONNECT"))
					r.add("%.60q %v", request, err)
					r.answers(got, methodsOf(request)...)
				}
				r.add("handler: %s", notes)
				r.add("log: %s", firstLines(f.log.String()))
			})
		})
	}
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
