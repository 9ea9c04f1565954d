package web

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A body is gathered behind the fields of its head, in the room that is kept for the framing, in a
// block of its own, or passed on: wherever one of them ends the answer must stay the same.
func TestBodiesOfAllSizesBesideTheirHeads(t *testing.T) {
	type shape struct{ field, size, piece int }
	body := func(n int) string { return strings.Repeat("0123456789abcdef", n/16+1)[:n] }
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var s shape
		fmt.Sscanf(r.URL.Path, "/%d/%d/%d", &s.field, &s.size, &s.piece)
		w.Header().Set("X-Field", body(s.field))
		if strings.HasPrefix(r.URL.RawQuery, "connection") {
			w.Header().Set("Connection", "keep-alive, "+body(s.field))
		}
		p := body(s.size)
		for len(p) > s.piece {
			fmt.Fprint(w, p[:s.piece])
			p = p[s.piece:]
		}
		fmt.Fprint(w, p)
		if strings.HasSuffix(r.URL.RawQuery, "flush") {
			w.(http.Flusher).Flush()
			fmt.Fprint(w, "end")
		}
	})})
	c := dial(t, f)
	r := bufio.NewReader(c)
	for _, query := range []string{"", "flush", "connection", "connection-flush"} {
		for _, field := range []int{0, 100, 170, 260, 300, 400, 470, 600, 1500} {
			for _, size := range []int{0, 1, 13, 100, 150, 200, 255, 256, 257, 280, 310, 500, 512, 1000, 1024, 2047,
				2048, 2049, 5000} {
				s := shape{field, size, 1 + size/3}
				fmt.Fprintf(c, "GET /%d/%d/%d?%s HTTP/1.1\r\nHost: h\r\n\r\n", s.field, s.size, s.piece, query)
				resp, err := http.ReadResponse(r, nil)
				got := mustBody(t, resp, err)
				want := body(size)
				if strings.HasSuffix(query, "flush") {
					want += "end"
				}
				if got != want || resp.Header.Get("X-Field") != body(field) || resp.Header.Get("Date") == "" {
					t.Fatalf("%+v %q: %d bytes of body, %q..., field of %d", s, query, len(got),
						got[:min(20, len(got))], len(resp.Header.Get("X-Field")))
				}
			}
		}
	}
}
