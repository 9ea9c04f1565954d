package web

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Who pipelines requests and ends its side gets the answers, although contexts end then; and what is incomplete fails.
func TestPipelinesThatEndLikeNetHTTP(t *testing.T) {
	for _, depth := range []int{0, 8} {
		for _, rest := range []string{last, "\r\n", post + "Connection: close\r\nContent-Length: 30\r\n\r\nabc", post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "GET / HTT"} {
			for _, request := range []string{get + end, post + "Content-Length: 3\r\n\r\nabc"} {
				t.Run(fmt.Sprintf("%.4q, %.40q, at most %d", request, rest, depth), func(t *testing.T) {
					t.Parallel()
					sameOnBoth(t, func(s *Server) {
						s.PipelineDepth = depth
						s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							body, err := io.ReadAll(r.Body)
							fmt.Fprintf(w, "%s %q %v;", r.URL, body, err)
							if r.URL.Path != "/last" && err == nil {
								<-r.Context().Done()
							}
						})
					}, func(t *testing.T, f *fixture, r *record) {
						r.add("%s", statuses(raw(t, f, request+rest, true)))
					})
				})
			}
		}
	}
}

// statuses are those of the answers that a client has got, with their bodies unless they say what was wrong with a request.
func statuses(sent string) (all []string) {
	for in := bufio.NewReader(strings.NewReader(sent)); ; {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return all
		}
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode == http.StatusBadRequest {
			body = nil
		}
		all = append(all, fmt.Sprintf("%d close %t %s %v", resp.StatusCode, resp.Close, body, err))
	}
}
