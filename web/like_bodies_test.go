package web

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad/web/internal/exchange"
)

// An answer waits until the body has come that its handler has left, as with net/http: there are
// clients which send all of a request before they read. It does not if it ends the connection, or
// if the handler has asked for both at once.
func TestAnswersWaitForBodiesLikeNetHTTP(t *testing.T) {
	const (
		length  = "Content-Length: 8\r\n"
		chunked = "Transfer-Encoding: chunked\r\n"
	)
	deny := func(status int, fields ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			r.Body.Read(make([]byte, 1))
			for _, value := range fields {
				w.Header().Set("Connection", value)
			}
			w.WriteHeader(status)
		}
	}
	closed := func(w http.ResponseWriter, r *http.Request) { // more than is gathered
		_, _ = io.ReadFull(r.Body, make([]byte, 2))
		r.Body.Close()
		_, _ = w.Write(make([]byte, 3000))
	}
	// http.MaxBytesReader would have read
	tooMuch := func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(413) }
	duplex := func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(http.StatusAccepted)
	}
	for _, c := range []struct {
		name, fields  string
		handler       http.HandlerFunc
		atOnce, close bool
	}{
		{"with a length", length, deny(401), false, false},
		{"of chunks", chunked, deny(401), false, false},
		{"too long to wait for", "Content-Length: 300000\r\n", deny(401), true, true},
		{"that is not asked for", length + "Expect: 100-continue\r\n",
			func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(401) }, true, true},
		{"with a length, too large", length, deny(413), true, true},
		{"of chunks, too large", chunked, deny(413), true, true},
		{"with a length that is too much", length, tooMuch, false, false},
		{"of chunks that are too many", chunked, tooMuch, false, false},
		{"with a length, handler that closes", length, deny(401, "close"), true, true},
		{"of chunks, handler that closes", chunked, deny(505, "close"), true, true},
		{"with a length, client that closes", length + "Connection: close\r\n", deny(401), true, true},
		{"of chunks, client that closes", chunked + "Connection: close\r\n", deny(401), true, true},
		{"with a length, closed", length, closed, true, false},
		{"of chunks, closed", chunked, closed, true, false},
		{"too long to read away, closed", "Content-Length: 300000\r\n", closed, true, true},
		{"with a length, beside the answer", length, duplex, true, false},
		{"of chunks, beside the answer", chunked, duplex, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			begin, rest := "abc", "defgh"
			if strings.HasPrefix(c.fields, chunked) {
				begin, rest = "3\r\nabc\r\n", "5\r\ndefgh\r\n0\r\n\r\n"
			}
			w, peer := slow(t, &Server{Handler: c.handler})
			peer.Write([]byte("PUT / HTTP/1.1\r\nHost: h\r\n" + c.fields + "\r\n" + begin))
			w.RunFor(time.Second)
			if got := peer.Count() > 0; got != c.atOnce {
				t.Errorf("answered before the end of the body: %v, want %v", got, c.atOnce)
			}
			peer.Write([]byte(rest))
			w.RunFor(time.Second)
			resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(peer.Received())), nil)
			if mustBody(t, resp, err); resp.Close != c.close {
				t.Errorf("%s, close %v, want %v", resp.Status, resp.Close, c.close)
			}
		})
	}
}

// An answer to HTTP/1.0 that ends with the connection does not wait for a body that will not be
// read, as with net/http.
func TestAnswersWithoutLengthWaitForNoBodyLikeNetHTTP(t *testing.T) {
	for method, atOnce := range map[string]bool{"POST": true, "HEAD": false} {
		for _, field := range []string{"", "Content-Length", "Transfer-Encoding"} {
			t.Run(method+" without a length because of "+field, func(t *testing.T) {
				w, peer := slow(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if field != "" {
						w.Header()[field] = map[string][]string{"Transfer-Encoding": {"gzip"}}[field]
					}
				})})
				peer.Write([]byte(method + " / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 8\r\n\r\nabc"))
				w.RunFor(time.Second)
				if got, want := peer.Count() > 0, atOnce && field != ""; got != want {
					t.Errorf("answered before the end of the body: %v, want %v", got, want)
				}
			})
		}
	}
}

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

// It does not wait for a body that does not come: net/http does, as long as its timeouts allow.
func TestAnswerWithoutTheBody(t *testing.T) {
	for name, fields := range map[string]string{"with a length": "Content-Length: 8\r\n\r\nabc",
		"of chunks": "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"} {
		t.Run(name, func(t *testing.T) {
			w, peer := slow(t, &Server{Handler: http.NotFoundHandler()})
			peer.Write([]byte("PUT / HTTP/1.1\r\nHost: h\r\n" + fields))
			w.RunFor(exchange.StopTimeout - time.Second)
			if peer.Count() > 0 {
				t.Errorf("answered after %v", exchange.StopTimeout-time.Second)
			}
			w.RunFor(2 * time.Second)
			resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(peer.Received())), nil)
			if mustBody(t, resp, err); resp.StatusCode != 404 || !resp.Close {
				t.Errorf("%s, close %v", resp.Status, resp.Close)
			}
		})
	}
}

// Where the head has gone before, the connection does not wait for what cannot come any more.
func TestNothingFollowsTheEnd(t *testing.T) {
	w, peer := slow(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		if _, err := io.ReadAll(r.Body); err != io.ErrUnexpectedEOF {
			t.Errorf("the body ends with %v", err)
		}
	})})
	peer.Write([]byte("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\nabc"))
	w.RunFor(time.Second)
	peer.CloseWrite()
	w.RunFor(time.Second)
	if got := string(peer.Received()); !strings.HasSuffix(got, "\r\n0\r\n\r\n") || !peer.Ended() {
		t.Errorf("a second after the client's end it has %q, ended %v", got, peer.Ended())
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
	if got := raw(t, f, chunked+"0\r\n"+strings.Repeat("A: b\r\n", exchange.MaxFields+1)+"\r\n",
		true); !strings.HasSuffix(got,
		"\r\n\r\n"+exchange.ErrTrailerLong.Error()) {
		t.Errorf("got %q", got)
	}
}
