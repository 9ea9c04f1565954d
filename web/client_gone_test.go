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

	"github.com/myriad-go/myriad/web/internal/exchange"
	"github.com/myriad-go/myriad/web/internal/http1"
)

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

// A handler is not told of its client's FIN before it has begun, nor before it has read its body,
// nor as soon as it has.
func TestClientGoneNotice(t *testing.T) {
	var now exchange.Moment = 1
	h := &http1.Conn{Link: exchange.Link{From: &exchange.Origin{Base: context.Background()}}}
	begin := func(x *http1.Stream) *http1.Stream {
		x.Given = exchange.NewGiven()
		x.Given.Ctx.Link = &h.Link
		return x
	}
	x := begin(new(http1.Stream))
	told := func() bool { return x.Given.Ctx.Err() != nil }
	look := func(times int) {
		for range times {
			if now = x.TellsOfEnd(now); now == exchange.Never {
				t.Fatal("nobody will look again")
			}
			x.LookAtEnd(now)
		}
	}
	if look(100); told() {
		t.Error("a handler that has not begun is told")
	}
	x.Body = new(exchange.Body)
	x.Given.Ctx.Begin()
	if look(100); told() {
		t.Error("a handler that has not read its body is told")
	}
	x.Body.SawEnd()
	if look(1); told() {
		t.Error("a handler is told at once")
	}
	if look(1); !told() || x.TellsOfEnd(now+1) != exchange.Never {
		t.Error("a handler is not told, or will be again")
	}
	for name, x := range map[string]*http1.Stream{"an inline task": {Exchange: exchange.Exchange{Inlined: true}},
		"a body that is closed": {Exchange: exchange.Exchange{Inlined: true, Body: &exchange.Body{Closed: true}}}} {
		begin(x).LookAtEnd(x.TellsOfEnd(1))
		if x.Given.Ctx.Err() == nil {
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
