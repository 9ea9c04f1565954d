package web

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// likeHandlers answer in the ways that decide what a head says.
var likeHandlers = map[string]http.HandlerFunc{
	"nothing":   func(w http.ResponseWriter, r *http.Request) {},
	"short":     func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html>hello") },
	"two":       func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{"); io.WriteString(w, "}") },
	"long":      func(w http.ResponseWriter, r *http.Request) { w.Write(bytes.Repeat([]byte("long "), 10_000)) },
	"status":    func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(404) },
	"204":       func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204); io.WriteString(w, "lost") },
	"304":       func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Etag", "x"); w.WriteHeader(304) },
	"not found": http.NotFound,
	"error":     func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", 500) },
	"redirect":  func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) },
	"length": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "3")
		io.WriteString(w, "abc")
	},
	"bad length": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "x")
		io.WriteString(w, "abc")
	},
	"no type": func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		io.WriteString(w, "abc")
	},
	"no date": func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		io.WriteString(w, "abc")
	},
	"encoded": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, "abc")
	},
	"many values": func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Set-Cookie"] = []string{"a=b", "c=d"}
		w.Header().Set("Connection", "keep-alive")
		w.Header().Set("Transfer-Encoding", "chunked")
		w.Header().Set("X-Bad", "a\nb")
		io.WriteString(w, "abc")
	},
	"flushed": func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "abc")
		w.(http.Flusher).Flush()
		w.Header().Set("X-Late", "yes")
		io.WriteString(w, "def")
	},
	"trailers": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "A, B")
		io.WriteString(w, "abc")
		w.Header().Set("A", "1")
		w.Header().Set("C", "not announced")
	},
	"trailers alone": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(http.TrailerPrefix+"A", "1")
	},
	"echo": func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%d %v %v ", r.ContentLength, r.TransferEncoding, r.Trailer)
		io.Copy(w, r.Body)
		fmt.Fprint(w, r.Trailer, r.Header["Content-Length"], r.Header["Expect"], r.Close, r.URL, r.Proto)
	},
	"ranges": func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "x.txt", time.Time{}, strings.NewReader(strings.Repeat("content", 1000)))
	},
}

// Over HTTP/2, too, answers are those of net/http: status, fields, body, trailers and faults, for
// each handler and method.
func TestHTTP2AnswersLikeNetHTTP(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { likeHandlers[r.Header.Get("Do")](w, r) })
	f, clients := serveHTTP2(t, &Server{Handler: h})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	std := &http.Server{Handler: h, Protocols: plainHTTP2(), ErrorLog: log.New(io.Discard, "", 0)}
	go std.Serve(l)
	defer std.Close()
	c := clients["x/net"]
	for name := range likeHandlers {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			here, there := saidOf(c, f.addr, method, name), saidOf(c, l.Addr().String(), method, name)
			if here != there {
				t.Errorf("%s %s: got\n%s\nnet/http:\n%s", method, name, here, there)
			}
		}
	}
}

// saidOf is what a server says to one request, without the date.
func saidOf(c *http.Client, addr, method, name string) string {
	var body io.Reader
	if method == "POST" {
		body = io.MultiReader(strings.NewReader("of unknown "), strings.NewReader("length"))
	}
	req, _ := http.NewRequest(method, "http://"+addr+"/path?q=a%20b", body)
	req.Header.Set("Do", name)
	resp, err := c.Do(req)
	if err != nil {
		return "no answer"
	}
	defer resp.Body.Close()
	p, err := io.ReadAll(resp.Body)
	var fields []string
	for name, values := range resp.Header {
		if name == "Date" {
			values = nil
		}
		fields = append(fields, fmt.Sprint(name, values))
	}
	slices.Sort(fields)
	return fmt.Sprint(resp.StatusCode, fields, len(p), " ", string(p[:min(len(p), 200)]), resp.Trailer, err != nil,
		resp.ContentLength)
}
