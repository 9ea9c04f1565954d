package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A client that pipelines requests and ends its side gets the answers, although contexts end then;
// an incomplete request fails.
func TestPipelinesThatEndLikeNetHTTP(t *testing.T) {
	for _, depth := range []int{0, 8} {
		for _, rest := range []string{last, "\r\n", post + "Connection: close\r\nContent-Length: 30\r\n\r\nabc",
			post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "GET / HTT"} {
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

// statuses are those of the answers that a client has got, with their bodies unless they say what
// was wrong with a request.
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

// A head that breaks off is answered, also if it is empty lines alone, but for one behind an answer
// that has hardly begun, with which the connection ends as if it had not.
func TestHeadsThatBreakOffLikeNetHTTP(t *testing.T) {
	for _, before := range []string{"", get + end, post + "Content-Length: 3\r\n\r\nabc"} {
		for _, rest := range []string{"G", "GET", "PRI", "GET ", "GET / HTTP/1.1", "GET / HTTP/1.1\r\nHo", "\r", "\r\n",
			"\r\n\r", "\r\n\r\n", "\r\n\r\n\r",
			"\r\n\r\n\r\n", "\r\nG", "\r\nGE", "\r\n\r\nG", "\r\n\r\nGET / HTT"} {
			for _, apart := range []bool{false, true} {
				t.Run(fmt.Sprintf("%.4q, %.20q, apart %t", before, rest, apart), func(t *testing.T) {
					t.Parallel()
					sameOnBoth(t, func(s *Server) { s.Handler = http.NotFoundHandler() },
						func(t *testing.T, f *fixture, r *record) {
							c := dial(t, f)
							in := bufio.NewReader(c)
							if apart && before != "" {
								io.WriteString(c, before)
								resp, err := http.ReadResponse(in, nil)
								r.add("%s", mustBody(t, resp, err))
								io.WriteString(c, rest)
							} else {
								io.WriteString(c, before+rest)
							}
							closeWrite(c)
							got, err := io.ReadAll(in)
							r.add("%v %v", statuses(string(got)), err)
						})
				})
			}
		}
	}
}

// Handlers that wait for the end of their context see it, each in its turn, when their client has
// ended its side.
func TestHandlersHearOfTheEndLikeNetHTTP(t *testing.T) {
	for _, request := range []string{
		get + end, get + end + get + end + get + end, post + "Content-Length: 3\r\n\r\nabc",
		post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + get + end,
	} {
		for _, depth := range []int{0, 8} {
			for _, dispatch := range []Dispatch{DispatchAuto, DispatchPool, DispatchInline} {
				t.Run(fmt.Sprintf("%d bytes, %v, at most %d", len(request), dispatch, depth), func(t *testing.T) {
					t.Parallel()
					sameOnBoth(t, func(s *Server) {
						s.PipelineDepth, s.Dispatch = depth, dispatch
						s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							_, err := io.ReadAll(r.Body)
							<-r.Context().Done()
							fmt.Fprint(w, err, r.Context().Err())
						})
					}, func(t *testing.T, f *fixture, r *record) {
						r.add("%s", statuses(raw(t, f, request, true)))
					})
				})
			}
		}
	}
}

// Whose body cannot be read because of its connection has no context either, but one that is wrong
// or too large leaves it.
func TestContextsOfFailedBodiesLikeNetHTTP(t *testing.T) {
	const chunked = "Transfer-Encoding: chunked\r\n\r\n"
	for _, request := range []string{
		post + "Content-Length: 9\r\n\r\nabc", post + chunked + "3\r\nab", post + chunked + "3\r\nabc\r\n",
		post + chunked + "0\r\nA: b\r\n",
		post + "X-Late: 1\r\nContent-Length: 9\r\n\r\nabc", post + chunked + "x\r\n\r\n",
		post + "X-Most: 1\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc",
	} {
		t.Run(fmt.Sprintf("%.80q", request), func(t *testing.T) {
			t.Parallel()
			sameOnBoth(t, func(s *Server) {
				s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("X-Late") != "" {
						_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(-time.Second))
					}
					if r.Header.Get("X-Most") != "" {
						r.Body = http.MaxBytesReader(w, r.Body, 2)
					}
					_, err := io.ReadAll(r.Body)
					fmt.Fprint(w, err != nil, r.Context().Err())
				})
			}, func(t *testing.T, f *fixture, r *record) {
				// What is complete is sent without a FIN, because net/http may see that before its
				// handler asks, and may not.
				got := raw(t, f, request, !strings.Contains(request, "X-"))
				// whether that closes the connection is tested elsewhere
				r.add("%s", got[strings.LastIndex(got, "\n")+1:])
			})
		})
	}
}

// A handler is not told of its client's FIN before it has begun, nor before it has read its body,
// nor as soon as it has.
func TestClientGoneNotice(t *testing.T) {
	var now moment = 1
	h := &conn{link: link{from: &origin{base: context.Background()}}}
	begin := func(x *h1stream) *h1stream {
		x.given = newGiven()
		x.given.ctx.link = &h.link
		return x
	}
	x := begin(new(h1stream))
	told := func() bool { return x.given.ctx.Err() != nil }
	look := func(times int) {
		for range times {
			if now = x.tellsOfEnd(now); now == never {
				t.Fatal("nobody will look again")
			}
			x.lookAtEnd(now)
		}
	}
	if look(100); told() {
		t.Error("a handler that has not begun is told")
	}
	x.body = new(body)
	x.given.ctx.begin()
	if look(100); told() {
		t.Error("a handler that has not read its body is told")
	}
	x.body.sawEnd()
	if look(1); told() {
		t.Error("a handler is told at once")
	}
	if look(1); !told() || x.tellsOfEnd(now+1) != never {
		t.Error("a handler is not told, or will be again")
	}
	for name, x := range map[string]*h1stream{"an inline task": {exchange: exchange{inlined: true}},
		"a body that is closed": {exchange: exchange{inlined: true, body: &body{closed: true}}}} {
		begin(x).lookAtEnd(x.tellsOfEnd(1))
		if x.given.ctx.Err() == nil {
			t.Errorf("%s is not told", name)
		}
	}
}

// What a handler reads and writes in vain fails as with net/http, as far as programs look into it,
// and ends its context.
func TestErrorsLikeNetHTTP(t *testing.T) {
	for _, late := range []string{"", "read", "write"} {
		t.Run("late "+late, func(t *testing.T) {
			t.Parallel()
			var ended chan string
			var begun chan struct{}
			sameOnBoth(t, func(s *Server) {
				mine, beginning := make(chan string, 1), make(chan struct{})
				ended, begun = mine, beginning
				s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					close(beginning)
					c, past := http.NewResponseController(w), time.Now().Add(-time.Second)
					var err error
					if late == "write" {
						_ = c.SetWriteDeadline(past)
					} else {
						if late == "read" {
							_ = c.SetReadDeadline(past)
						}
						_, err = io.ReadAll(r.Body)
					}
					note := kinds(err)
					if late != "read" {
						for err = nil; err == nil; {
							_, err = w.Write(make([]byte, 10_000))
						}
						note += kinds(err) + kinds(c.Flush())
					}
					mine <- fmt.Sprint(note, r.Context().Err())
				})
			}, func(t *testing.T, f *fixture, r *record) {
				c := dial(t, f)
				request := post + "Content-Length: 9\r\n\r\nabc"
				if late == "write" {
					request = get + end // net/http would wait for the body first
				}
				io.WriteString(c, request)
				if late == "" {
					<-begun
					_ = c.(*net.TCPConn).SetLinger(0) // a reset
					c.Close()
				}
				r.add("%s", <-ended)
			})
		})
	}
}

// kinds is what frameworks ask of an error to find out that the client has gone.
func kinds(err error) string {
	var op *net.OpError
	var number *os.SyscallError
	var timeout net.Error
	if !errors.As(err, &op) {
		return fmt.Sprintf("%v; ", err)
	}
	return fmt.Sprintf("%s %s from %t to %t, system %t gone %t, timeout %t %t; ", op.Op, op.Net, op.Source != nil,
		op.Addr != nil, errors.As(err, &number),
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE),
		errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, os.ErrDeadlineExceeded))
}
