package h1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/textproto"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// onlyRefusedHere are the reasons for refusing a head that net/http's server accepts; doc.go has
// the list in words. The last two its server has as well, but http.ReadRequest keeps the Host field
// from us.
var onlyRefusedHere = []error{errBareLF, errFold, errLengthAndTE, errTEOld, errTarget, ErrPreface, errHostMissing,
	errHost}

// compareWithNetHTTP: what this package accepts net/http accepts too, apart from what doc.go lists,
// and it means the same: request line, host, fields, body, trailer, and where the next request
// starts. What only net/http accepts is refused for a reason on the list. It reports whether both
// accept p.
func compareWithNetHTTP(t *testing.T, p []byte) bool {
	p = p[EmptyLines(p):]
	var h Head
	n, err := ParseRequest(p, Limits{}, &h)
	in := bytes.NewReader(p)
	r := bufio.NewReader(in)
	req, stdErr := readAsServer(r)
	switch {
	case err != nil:
		padded := err == error(errLength) && bytes.Contains(p, []byte("00000"))
		if stdErr == nil && !slices.Contains(onlyRefusedHere, err) && !padded {
			t.Fatalf("%q: only net/http accepts it, %v is not on the list", p, err)
		}
	case n == 0: // net/http calls it an error
	case stdErr != nil:
		if !urlRefused(&h) { // the caller's business, doc.go
			t.Fatalf("net/http refuses %q: %v", p[:n], stdErr)
		}
	default:
		compareHeads(t, &h, req)
		compareBodies(t, &h, p, n, req, func() int { return len(p) - in.Len() - r.Buffered() })
		return true
	}
	return false
}

// readAsServer adds to http.ReadRequest the checks of version and names that net/http's server
// makes after it.
func readAsServer(r *bufio.Reader) (*http.Request, error) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return nil, err
	}
	preface := req.Method == "PRI" && req.RequestURI == "*" && req.Proto == "HTTP/2.0"
	if req.ProtoMajor != 1 && !preface {
		return nil, fmt.Errorf("version %s", req.Proto)
	}
	for name := range req.Header {
		if !IsToken(name) { // http.ReadRequest takes spaces
			return nil, fmt.Errorf("name %q", name)
		}
	}
	return req, nil
}

// TestAgainstNetHTTP puts requests together from parts that matter, which a fuzzer would need long
// to find.
func TestAgainstNetHTTP(t *testing.T) {
	const requests = 20000
	both := 0
	for seed := range uint64(requests) {
		if compareWithNetHTTP(t, []byte(assemble(rand.New(rand.NewPCG(seed, 2))))) {
			both++
		}
	}
	if both < requests/20 || both > requests/2 {
		t.Errorf("both accept %d of %d requests; a test of both sides needs a share of each", both, requests)
	}
}

func assemble(r *rand.Rand) string {
	one := func(from ...string) string { return from[r.IntN(len(from))] }
	rare := func(usual string, from ...string) string {
		if r.IntN(8) > 0 {
			return usual
		}
		return one(from...)
	}
	var b strings.Builder
	end := func() string { return rare("\r\n", "\n", "\r\r\n", "\r", " \r\n") }
	b.WriteString(rare("", "\r\n", "\n", " ") + rare("GET", "POST", "CONNECT", "OPTIONS", "get", "G@T", "PRI", "") +
		rare(" ", "  ", "\t"))
	b.WriteString(rare("/", "*", "/a?b#c", "/%zz", "http://b/c", "http://u@b/", "http:///", "b:80", "b", "b:",
		"[::1]:1", "mailto:x", "//b/c", "/\xff|"))
	b.WriteString(rare(" ", "  ") + rare("HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "HTTP/11", "http/1.1",
		"HTTP/0.9") + end())
	b.WriteString(rare("Host: a", "", "Host:", "Host : a", "host: b/c", "Host: a\r\nHost: a") + end())
	for range r.IntN(4) {
		b.WriteString(one("X: y", "X:", " fold", "x-y:  z\t", "X Y: z", "Connection: close",
			"connection: x, Keep-Alive", "Connection: x close\ty",
			"Content-Length: 5", "content-length: 5", "Content-Length: 05", "Content-Length: 5, 5",
			"Content-Length: +5", "Content-Length:",
			"Content-Length: 00000000000000000000005", "Transfer-Encoding: chunked", "Transfer-Encoding: Chunked ",
			"Transfer-Encoding: gzip",
			"Transfer-Encoding: chunked, chunked", "Trailer: X", "Trailer: content-length", "Pragma: no-cache",
			"X: \x7f", "X: \xff", "Expect: 100-continue",
			"Upgrade: h2c") + end())
	}
	b.WriteString(end() + one("hello", "5\r\nhello\r\n", "5;a=\"b\"\r\nhello\r\n", "5 \r\nhello\r\n", "5;\r\nhello\r\n",
		"5\nhello\n"))
	b.WriteString(rare("0\r\n", "00;x\r\n", "0\n", "-0\r\n", "0x0\r\n") +
		rare("", "X: y\r\n", "Host: b\r\n", "X : y\r\n") + "\r\nGET / HTTP/1.1\r\n")
	return b.String()
}

// spaceBeforeExtension reports the one thing in a chunked body that only this package accepts, or
// what looks like it.
func spaceBeforeExtension(p []byte) bool {
	return bytes.Contains(p, []byte(" ;")) || bytes.Contains(p, []byte("\t;"))
}

func urlRefused(h *Head) bool {
	target := string(h.Target)
	if h.Form == Authority {
		target = "http://" + target
	}
	_, err := url.ParseRequestURI(target)
	return err != nil
}

func compareHeads(t *testing.T, h *Head, req *http.Request) {
	length := max(h.ContentLength, 0)
	if h.Chunked {
		length = -1
	}
	ours := fmt.Sprintf("%s %s %d.%d length %d close %t", h.Method, h.Target, h.Major, h.Minor, length, !h.KeepAlive)
	std := fmt.Sprintf("%s %s %d.%d length %d close %t", req.Method, req.RequestURI, req.ProtoMajor, req.ProtoMinor,
		req.ContentLength,
		req.Close || closeAmongWords(req.Header["Connection"]))
	if ours != std {
		t.Fatalf("ours %q\nnet/http %q", ours, std)
	}
	// In a target net/http decodes percent-encoding of the host; h.Host is a view.
	if string(h.Host) != req.Host && !bytes.ContainsRune(h.Host, '%') {
		t.Fatalf("host %q, net/http %q", h.Host, req.Host)
	}
	header := http.Header{}
	for _, f := range h.Fields {
		key := CanonicalName(f.Name)
		header[key] = append(header[key], string(f.Value))
	}
	asNetHTTP(header, h)
	if !reflect.DeepEqual(header, req.Header) {
		t.Fatalf("fields %q\nnet/http %q", header, req.Header)
	}
}

// closeAmongWords reports what net/http's server looks for in the first Connection field besides
// Request.Close, and this package in all.
func closeAmongWords(values []string) bool {
	for _, word := range strings.FieldsFunc(strings.Join(values, ","),
		func(r rune) bool { return strings.ContainsRune(" \t,", r) }) {
		if fold([]byte(word), "close") {
			return true
		}
	}
	return false
}

// asNetHTTP makes the changes that http.ReadRequest makes to a header.
func asNetHTTP(header http.Header, h *Head) {
	delete(header, "Host")
	if h.Chunked {
		delete(header, "Transfer-Encoding")
		delete(header, "Trailer")
	}
	if lengths := header["Content-Length"]; len(lengths) > 1 {
		header["Content-Length"] = lengths[:1]
	}
	if _, set := header["Cache-Control"]; !set && len(header["Pragma"]) > 0 && header["Pragma"][0] == "no-cache" {
		header["Cache-Control"] = []string{"no-cache"}
	}
}

func compareBodies(t *testing.T, h *Head, p []byte, n int, req *http.Request, stdUsed func() int) {
	body, trailer, used, ok := readBody(h, p[n:])
	if !ok || h.Chunked && spaceBeforeExtension(p[n:]) {
		return
	}
	std, err := io.ReadAll(req.Body)
	if err != nil {
		t.Fatalf("net/http refuses the body of %q: %v", p, err)
	}
	if string(std) != string(body) || stdUsed() != n+used {
		t.Fatalf("body %q up to %d, net/http %q up to %d", body, n+used, std, stdUsed())
	}
	for name, values := range req.Trailer {
		if len(values) > 0 && !forbiddenTrailer([]byte(name)) && !reflect.DeepEqual(trailer[name], values) {
			t.Fatalf("trailer %s %q, net/http %q", name, trailer[name], values)
		}
	}
	for name := range trailer {
		if _, ok := req.Trailer[name]; !ok {
			t.Fatalf("net/http has no trailer %q", name)
		}
	}
}

func readBody(h *Head, p []byte) (body []byte, trailer textproto.MIMEHeader, used int, ok bool) {
	if !h.Chunked {
		size := max(h.ContentLength, 0)
		if size > int64(len(p)) {
			return nil, nil, 0, false
		}
		return p[:size], nil, int(size), true
	}
	data, used, done, err := decodeAll(p, allAtOnce)
	if !done || err != nil {
		return nil, nil, 0, false
	}
	n, fields, err := ParseTrailer(p[used:], Limits{}, nil)
	if n == 0 || err != nil {
		return nil, nil, 0, false
	}
	trailer = textproto.MIMEHeader{}
	for _, f := range fields {
		trailer.Add(string(f.Name), string(f.Value))
	}
	return []byte(data), trailer, used + n, true
}
