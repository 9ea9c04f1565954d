package web

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
)

// Four empty lines before a request are let pass, however they come, and the fifth is refused.
func TestEmptyLinesAreBounded(t *testing.T) {
	for _, size := range []int{1, 2, 3, 5, 4096} {
		f := serveOn(t, &Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})},
			myriad.Config{Loops: 1, ReadBuffer: size})
		for _, before := range []string{"", get + end, post + "Content-Length: 1\r\n\r\na"} {
			for lines, want := range []string{"200", "200", "200", "200", "200", "400", "400"} {
				request := before + strings.Repeat("\r\n", lines) + get + "Connection: close\r\n\r\n"
				all := statuses(raw(t, f, request, false))
				if got := all[len(all)-1]; !strings.HasPrefix(got, want) {
					t.Errorf("%d empty lines behind %.4q, read %d bytes at a time: %v, want %s at the end", lines,
						before, size, all, want)
				}
			}
		}
	}
}

// A client that sends nothing but empty lines costs no more than a few of them.
func TestEmptyLinesWithoutEnd(t *testing.T) {
	f := serveOn(t, &Server{Handler: http.NotFoundHandler()}, myriad.Config{Loops: 1, ReadBuffer: 2,
		LingerTimeout: time.Hour})
	c := dial(t, f)
	go func() {
		for _, err := io.WriteString(c, "\r\n"); err == nil; {
			_, err = io.WriteString(c, strings.Repeat("\r\n", 1000))
		}
	}()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if got := mustBody(t, res, err); res.StatusCode != 400 || !strings.Contains(got, "empty lines") {
		t.Errorf("status %d, %q", res.StatusCode, got)
	}
}

// The time of a head begins with its second empty line: the first may be one too many behind a
// body.
func TestEmptyLinesBeginAHead(t *testing.T) {
	f := serve(t, &Server{ReadHeaderTimeout: 50 * time.Millisecond, IdleTimeout: time.Hour,
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
	c := dial(t, f)
	in := bufio.NewReader(c)
	io.WriteString(c, get+end)
	res, err := http.ReadResponse(in, nil)
	mustBody(t, res, err)
	io.WriteString(c, "\r\n\r\n")
	if res, err = http.ReadResponse(in, nil); err != nil || res.StatusCode != 408 {
		t.Errorf("%v, %v; want 408", res, err)
	}
}
