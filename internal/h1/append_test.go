package h1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"
)

func TestStatusTextIsThatOfNetHTTP(t *testing.T) {
	for status := -1; status < 1100; status++ {
		if got, want := StatusText(status), http.StatusText(status); got != want {
			t.Errorf("StatusText(%d) = %q, want %q", status, got, want)
		}
	}
}

func TestAppendStatusLine(t *testing.T) {
	for _, tt := range []struct {
		minor, status int
		want          string
	}{{1, 200, "HTTP/1.1 200 OK\r\n"}, {0, 404, "HTTP/1.0 404 Not Found\r\n"},
		{7, 799, "HTTP/1.1 799 status code 799\r\n"}} {
		if got := string(AppendStatusLine([]byte("a"), tt.minor, tt.status)); got != "a"+tt.want {
			t.Errorf("AppendStatusLine(%d, %d) = %q, want %q", tt.minor, tt.status, got, tt.want)
		}
	}
	for _, status := range []int{-1, 0, 99, 1000} {
		if !panics(func() { AppendStatusLine(nil, 1, status) }) {
			t.Errorf("AppendStatusLine(%d) does not panic", status)
		}
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

func TestAppendField(t *testing.T) {
	for _, tt := range []struct{ name, value, want string }{
		{"X-Y", "z", "X-Y: z\r\n"},
		{"X", "", "X: \r\n"},
		{"X", " \t a b\t", "X: a b\r\n"},
		{"X", "a\r\nSet-Cookie: b", "X: a  Set-Cookie: b\r\n"},
		{"X", "\na\xff\r", "X: a\xff\r\n"},
		{"X", "a\x00b", "X: a b\r\n"},
		{"", "a", ""},
		{"X\r\nY", "a", ""},
		{"X Y", "a", ""},
		{"X:", "a", ""},
	} {
		got := string(AppendField([]byte(">"), tt.name, tt.value))
		if got != ">"+tt.want {
			t.Errorf("AppendField(%q, %q) = %q, want %q", tt.name, tt.value, got, tt.want)
		}
		var std strings.Builder
		std.WriteString(">")
		if err := (http.Header{tt.name: {tt.value}}).Write(&std); err != nil {
			t.Fatal(err)
		}
		if std.String() != got && !strings.ContainsRune(tt.value, 0) {
			t.Errorf("net/http writes %q, AppendField %q", std.String(), got)
		}
	}
}

func TestAppendedResponseIsRead(t *testing.T) {
	p := AppendStatusLine(nil, 1, 200)
	p = AppendLength(p, 1<<62)
	p = append(p, "\r\n"...)
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(p)), nil)
	if err != nil || resp.ContentLength != 1<<62 {
		t.Fatal(err, resp)
	}
	p = append([]byte(Continue), AppendRequestLine(nil, "GET", "/")...)
	var h ResponseHead
	if n, err := ParseResponse(p, Limits{}, &h); n != len(Continue) || err != nil || h.Status != 100 {
		t.Fatal(n, err, h.Status)
	}
}

func TestAppendChunk(t *testing.T) {
	var p []byte
	want := ""
	for _, size := range []int{1, 0, 15, 16, 255, 4096, 70000} {
		data := strings.Repeat("x", size)
		p, want = AppendChunk(p, []byte(data)), want+data
	}
	p = append(p, LastChunk...)
	got, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(p)))
	if err != nil || string(got) != want {
		t.Fatalf("net/http reads %d bytes, %v; want %d", len(got), err, len(want))
	}
	data, used, done, err := decodeAll(p, allAtOnce)
	if data != want || used != len(p) || !done || err != nil {
		t.Fatal(len(data), used, done, err)
	}
	if !panics(func() { AppendChunkSize(nil, 0) }) {
		t.Error("AppendChunkSize(0) would end the body")
	}
}
