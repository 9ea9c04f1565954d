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
