package web

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// With EnableFullDuplex an answer that has begun before its request's body says nothing of an end
// of the connection, which goes on.
func TestFullDuplexGoesOnLikeNetHTTP(t *testing.T) {
	const long = 300_000 // more than would be read away
	for fields, body := range map[string]string{
		fmt.Sprintf("Content-Length: %d\r\n\r\n", long): strings.Repeat("b", long),
		"Transfer-Encoding: chunked\r\n\r\n":            "5\r\nhello\r\n0\r\n\r\n",
	} {
		sameOnBoth(t, func(s *Server) {
			s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c := http.NewResponseController(w)
				fmt.Fprint(w, c.EnableFullDuplex(), c.Flush())
				n, err := io.Copy(io.Discard, r.Body)
				fmt.Fprint(w, n, err)
			})
		}, func(t *testing.T, f *fixture, r *record) {
			c := dial(t, f)
			io.WriteString(c, post+fields)
			in := bufio.NewReader(c)
			resp, err := http.ReadResponse(in, nil)
			io.WriteString(c, body)
			r.add("%q: %s", fields, mustBody(t, resp, err))
			r.add("close %t", resp.Close)
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
			resp, err = http.ReadResponse(in, nil)
			r.add("%q: then %s", fields, mustBody(t, resp, err))
		})
	}
}

// failingBodies are what follows the fields of a POST.
var failingBodies = []string{
	"Content-Length: 9\r\n\r\n", "Content-Length: 9\r\n\r\nabc", "T5", "T5\r\n", "T5\r\nab", "T5\r\nabcde",
	"T5\r\nabcde\r\n", "T5\r\nabcde\r\n0",
	"T0\r\n", "T0\r\nA", "T0\r\nA: b", "T0\r\nA: b\r\n", "T5\r\nabcde\r\n0\r\n\r", "T\r\n", "T;a\r\n", "Tx\r\n",
	"T-5\r\n", "T 5\r\n", "T5x\r\n", "T5 x\r\n",
	"T5\nabcde", "T5\rX\r\n", "T5\r\nabcdefg\r\n", "T5\r\nabcde\n\r\n", "T5\r\nabcde\rX", "T11111111111111111\r\n",
	"T0\r\nnonsense\r\n\r\n", "T0\r\nA: \x00\r\n\r\n", "T0\r\n: b\r\n\r\n",
	// These end where net/http gives up, which resets the connection if there is more.
	"T5;" + strings.Repeat("a", 4094), "T0\r\nA: " + strings.Repeat("b", 4093),
	"T" + strings.Repeat("x\r\n1;"+strings.Repeat("a", 400)+"\r\n", 43)[3:],
}

// What Read says of a body that is none, or not all of it, it says in the words of net/http.
func TestFailingBodiesLikeNetHTTP(t *testing.T) {
	inTrailer := regexp.MustCompile(`malformed MIME header[^;]*`) // there with the line itself
	for _, body := range failingBodies {
		sameOnBoth(t, func(s *Server) {
			s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				p, err := io.ReadAll(r.Body)
				fmt.Fprintf(w, "%q %T %v %t", p, err, err, errors.Is(err, http.ErrLineTooLong))
				for range 2 {
					n, err := r.Body.Read(make([]byte, 1))
					fmt.Fprintf(w, "; %d %T %v", n, err, err)
				}
			})
		}, func(t *testing.T, f *fixture, r *record) {
			request := post + strings.Replace(body, "T", "Transfer-Encoding: chunked\r\n\r\n", 1)
			_, answer, _ := strings.Cut(raw(t, f, request, true), "\r\n\r\n")
			r.add("%.50q: %s", body, inTrailer.ReplaceAllString(answer, "malformed MIME header"))
		})
	}
}

// So it does of a trailer that is longer than Limits allow, which is longer than there.
func TestLongTrailer(t *testing.T) {
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		fmt.Fprint(w, err)
	})})
	if got := raw(t, f, chunked+"0\r\n"+strings.Repeat("A: b\r\n", maxFields+1)+"\r\n", true); !strings.HasSuffix(got,
		"\r\n\r\n"+errTrailerLong.Error()) {
		t.Errorf("got %q", got)
	}
}
