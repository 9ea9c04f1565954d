package websocket

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
)

func requestOf(t *testing.T, wire string) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(wire)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}
