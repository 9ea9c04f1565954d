package web

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/myriad-go/myriad"
)

// This file is about clients that end their side with a FIN and no close_notify, as many do (curl
// before 7.86, Python's ssl, a proxy that only knows
// TCP): what was asked completely is answered as on net/http's server.

// serveStandardTLS serves with net/http what s says.
func serveStandardTLS(t testing.TB, s *Server) *fixture {
	t.Helper()
	return serveStandardOn(t, s, func(ln net.Listener) net.Listener {
		return tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{pair()},
			NextProtos: []string{"http/1.1"}})
	})
}

// sameOverTLS is sameOnBoth over TLS, in both of its versions.
func sameOverTLS(t *testing.T, set func(*Server), run func(t *testing.T, dial func() *tls.Conn, r *record)) {
	t.Helper()
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		cfg := trusting()
		cfg.MaxVersion = version
		sameBetween(t, serveStandardTLS, serveTLS, set, func(t *testing.T, f *fixture, r *record) {
			run(t, func() *tls.Conn { return f.dialTLS(t, cfg) }, r)
		})
	}
}

// finOnly ends a client's side without a close_notify.
func finOnly(tc *tls.Conn) { closeWrite(tc.NetConn()) }

// answersAfterFIN sends request, ends the client's side with a FIN alone and reads all that comes.
func answersAfterFIN(tc *tls.Conn, request string) (string, error) {
	io.WriteString(tc, request)
	finOnly(tc)
	got, err := io.ReadAll(tc)
	return string(got), err
}

// A complete request before a FIN without close_notify is answered, wherever the handler runs; an
// incomplete one fails.
func TestRequestsBeforeTruncationLikeNetHTTP(t *testing.T) {
	const chunked = "Transfer-Encoding: chunked\r\n\r\n"
	for _, request := range []string{
		get + end, last, "GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
		get + end + get + end + last, post + "Content-Length: 3\r\n\r\nabc", post + chunked + "3\r\nabc\r\n0\r\n\r\n",
		post + "Connection: close\r\nContent-Length: 9\r\n\r\nabc", post + chunked + "3\r\nabc\r\n",
		post + chunked + "3\r\nab", "GET / HTT", get + end + "GET / HTT",
	} {
		for _, depth := range []int{0, 8} {
			t.Run(fmt.Sprintf("%.60q, at most %d", request, depth), func(t *testing.T) {
				t.Parallel()
				sameOverTLS(t, func(s *Server) {
					s.PipelineDepth = depth
					s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						body, err := io.ReadAll(r.Body)
						fmt.Fprintf(w, "%s %q %v;", r.URL, body, err)
					})
				}, func(t *testing.T, dial func() *tls.Conn, r *record) {
					got, err := answersAfterFIN(dial(), request)
					r.add("%s %v", statuses(got), err)
				})
			})
		}
	}
}

// A FIN in the middle of a record leaves what came before it: the request is answered.
func TestRequestBeforeHalfARecordLikeNetHTTP(t *testing.T) {
	sameOverTLS(t, func(s *Server) {
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %q %v;", r.URL, body, err)
		})
	}, func(t *testing.T, dial func() *tls.Conn, r *record) {
		for _, request := range []string{last, post + "Connection: close\r\nContent-Length: 9\r\n\r\nabc"} {
			tc := dial()
			io.WriteString(tc, request)
			tc.NetConn().Write([]byte{23, 3, 3, 0, 40, 1, 2, 3}) // a record of 40 bytes, of which three come
			finOnly(tc)
			got, err := io.ReadAll(tc)
			r.add("%s %v", statuses(string(got)), err)
		}
	})
}

// The end of a client's side ends the contexts of handlers, whose answers are sent then.
func TestContextsEndWithTruncationLikeNetHTTP(t *testing.T) {
	for _, dispatch := range []Dispatch{DispatchAuto, DispatchPool, DispatchInline} {
		t.Run(fmt.Sprint(dispatch), func(t *testing.T) {
			t.Parallel()
			sameOverTLS(t, func(s *Server) {
				s.Dispatch = dispatch
				s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					fmt.Fprint(w, r.Context().Err())
				})
			}, func(t *testing.T, dial func() *tls.Conn, r *record) {
				got, err := answersAfterFIN(dial(), get+end+get+end)
				r.add("%s %v", statuses(got), err)
			})
		})
	}
}

// Answers of 3 MB, as one Write, as many, of a known length and pipelined, reach a client whole
// that has ended its side and reads slowly.
func TestLargeAnswersAfterTruncation(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 3<<20/16)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/parts":
			for i := 0; i < len(text); i += 1 << 10 {
				io.WriteString(w, text[i:i+1<<10])
			}
		case "/length":
			w.Header().Set("Content-Length", fmt.Sprint(len(text)))
			fallthrough
		default:
			io.WriteString(w, text)
		}
	})
	ask := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n" }
	for name, request := range map[string]string{
		"one Write": ask("/"), "many": ask("/parts"), "of a known length": ask("/length"),
		"pipelined": ask("/length") + ask("/parts") + ask("/"), "HTTP/1.0": "GET /parts HTTP/1.0\r\n\r\n",
	} {
		for _, d := range []Dispatch{DispatchPool, DispatchAuto} {
			t.Run(fmt.Sprint(name, " ", d), func(t *testing.T) {
				t.Parallel()
				f := serveTLS(t, &Server{Handler: handler, Dispatch: d, PipelineDepth: 2})
				tc := f.dialTLS(t, trusting())
				_ = tc.NetConn().(*net.TCPConn).SetReadBuffer(256 << 10)
				io.WriteString(tc, request)
				finOnly(tc)
				in := bufio.NewReaderSize(tc, 1<<10)
				for range strings.Count(request, "GET") {
					resp, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Fatal(err)
					}
					if body, err := io.ReadAll(resp.Body); err != nil || string(body) != text {
						t.Fatalf("%d bytes of %d, %v", len(body), len(text), err)
					}
				}
				if rest, err := io.ReadAll(in); len(rest) > 0 || err != nil {
					t.Errorf("behind the answers: %d bytes, %v", len(rest), err)
				}
			})
		}
	}
}

// A hijacked connection is its handler's: it may answer behind the client's end. With LeanTLS it
// learns that there was no close_notify, which a *tls.Conn does not say.
func TestHijackedAfterTruncationLikeNetHTTP(t *testing.T) {
	sameOverTLS(t, func(s *Server) {
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			nc, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			got, err := io.ReadAll(rw)
			if _, standard := nc.(*tls.Conn); !standard { // with LeanTLS a cut stream is no whole one
				if err != io.ErrUnexpectedEOF {
					t.Errorf("Read of a cut stream: %v", err)
				}
				err = nil
			}
			fmt.Fprintf(nc, "%q, %v, %s", got, err, strings.Repeat("x", 1<<20))
		})
	}, func(t *testing.T, dial func() *tls.Conn, r *record) {
		got, err := answersAfterFIN(dial(), get+end+"and more")
		r.add("%q %v", got, err)
	})
}

// A handler that has taken a connection over by Upgrade does not take a cut stream for a whole one.
func TestUpgradedLearnsOfTruncation(t *testing.T) {
	spoken := &listener{received: make(chan string, 10), closed: make(chan error, 1)}
	f := serveTLS(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := Upgrade(w, []byte("HTTP/1.1 101 Switching Protocols\r\n\r\n"), spoken); err != nil {
			t.Error(err)
		}
	})})
	answersAfterFIN(f.dialTLS(t, trusting()), get+end+"and more")
	if got := <-spoken.received; got != "and more" {
		t.Errorf("received %q", got)
	}
	if err := <-spoken.closed; err != io.ErrUnexpectedEOF {
		t.Errorf("Closed(%v)", err)
	}
}

// A listener notes what it is called with.
type listener struct {
	received chan string
	closed   chan error
}

func (*listener) Opened(*myriad.Conn)                 {}
func (l *listener) Received(_ *myriad.Conn, p []byte) { l.received <- string(p) }
func (l *listener) Closed(_ *myriad.Conn, err error)  { l.closed <- err }

// A detached response ends with its client's side, as over TCP, and its owner is told; what was
// written is still sent.
func TestDetachedAfterTruncation(t *testing.T) {
	told := make(chan error, 1)
	f := serveTLS(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s, err := Detached(w)
		if err != nil {
			t.Error(err)
			return
		}
		s.SetWriteLimit(8 << 20)
		s.Write([]byte(strings.Repeat("x", 3<<20)))
		s.OnClose(func(err error) { told <- err })
	})})
	tc := f.dialTLS(t, trusting())
	io.WriteString(tc, get+end)
	in := bufio.NewReader(tc)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	finOnly(tc)
	body, err := io.ReadAll(resp.Body)
	if len(body) != 3<<20 || err != io.ErrUnexpectedEOF {
		t.Errorf("%d bytes, %v; want all that was written, and no end of the body", len(body), err)
	}
	if err := <-told; err == nil {
		t.Error("OnClose(nil): the stream was not closed by its owner")
	}
}

// Many such clients leave nothing behind. TestMain counts descriptors and goroutines.
func TestManyTruncations(t *testing.T) {
	f := serveTLS(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello")
	})})
	var clients sync.WaitGroup
	for range 50 {
		clients.Go(func() {
			got, err := answersAfterFIN(f.dialTLS(t, trusting()), get+end)
			if !strings.HasSuffix(got, "hello") || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	clients.Wait()
}
