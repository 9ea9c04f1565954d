package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// This file is what an exchange does around its handler, in fake time.

// Handlers get the errors of a connection in the form that a net.Conn gives them: *net.OpError.
func TestErrorsHaveTheFormOfNet(t *testing.T) {
	type match func(error) bool
	is := func(want error) match { return func(err error) bool { return err == want } }
	call := func(op string, number syscall.Errno) match {
		return func(err error) bool {
			e, ok := err.(*os.SyscallError)
			return ok && e.Syscall == op && e.Err == number
		}
	}
	foreign := errors.New("foreign")
	done := false
	st := calmStage(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(w)
		for _, tc := range []struct {
			op   string
			err  error
			want match
		}{
			{"write", fmt.Errorf("lost: %w", syscall.ECONNRESET), call("write", syscall.EPIPE)},
			{"read", syscall.ECONNRESET, call("read", syscall.ECONNRESET)},
			{"write", syscall.ETIMEDOUT, call("write", syscall.ETIMEDOUT)},
			{"write", fmt.Errorf("late: %w", os.ErrDeadlineExceeded), is(os.ErrDeadlineExceeded)},
			{"read", fmt.Errorf("over: %w", myriad.ErrClosed), is(net.ErrClosed)},
			{"read", http.ErrServerClosed, is(net.ErrClosed)},
			{"read", foreign, is(foreign)},
		} {
			e, ok := x.NetError(tc.op, tc.err).(*net.OpError)
			if !ok || e.Op != tc.op || !tc.want(e.Err) || e.Net != "tcp" || e.Addr.String() != r.RemoteAddr ||
				e.Source.String() != x.Conn().LocalAddr().String() {
				t.Errorf("%s, %v: got %#v", tc.op, tc.err, e)
			}
		}
		done = true
	})})
	p := st.Dial(st.at)
	if st.ask(p, time.Second, "/"); !done {
		t.Error("the handler has not run")
	}
	p.Close()
}

// If a handler panics or calls runtime.Goexit, the connection ends without the rest of its answer,
// and its context ends. Only a panic other than ErrAbortHandler is logged.
func TestHandlerThatDoesNotReturn(t *testing.T) {
	for _, d := range []Dispatch{DispatchPool, DispatchInline} {
		for name, logged := range map[string]bool{"panic": true, "abort": false, "exit": false} {
			t.Run(fmt.Sprint(d, ", ", name), func(t *testing.T) {
				var logs lockedLog
				var ctx context.Context
				ran := ""
				st := calmStage(t, &Server{Dispatch: d, ErrorLog: log.New(&logs, "", 0),
					Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						ran += r.URL.Path
						if r.URL.Path != "/end" {
							return
						}
						ctx = r.Context()
						w.Write(make([]byte, exchange.BodyBuffer/2))
						switch name {
						case "panic":
							panic("of the handler")
						case "abort":
							panic(http.ErrAbortHandler)
						}
						runtime.Goexit()
					})})
				p := st.Dial(st.at)
				st.ask(p, time.Second, "/", "/end", "/behind")
				if ran != "//end" || !p.Ended() || len(codes(t, p.Received())) != 1 || ctx.Err() == nil {
					t.Errorf("these ran: %s; the connection has ended: %v, %d answers; the context: %v", ran, p.Ended(),
						len(codes(t, p.Received())), ctx.Err())
				}
				if got := logs.String(); strings.Contains(got, "http: panic serving") != logged ||
					strings.Contains(got, "of the handler") != logged {
					t.Errorf("logged: %q", got)
				}
				p.Close()
			})
		}
	}
}

// "OPTIONS *" is answered by the server. With more than 4 KiB of a body the connection ends.
func TestOptionsOfTheServer(t *testing.T) {
	const options = "OPTIONS * HTTP/1.1\r\nHost: h\r\n"
	sized := func(n int) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", n, make([]byte, n)) }
	chunked := func(n int) string {
		return fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", n, make([]byte, n))
	}
	for rest, kept := range map[string]bool{"\r\n": true, sized(1): true, sized(4 << 10): true,
		sized(4<<10 + 1): false, chunked(4 << 10): true, chunked(4<<10 + 1): false} {
		st := calmStage(t, &Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Error("the handler was called")
		})})
		p := st.Dial(st.at)
		p.Write([]byte(options + rest))
		st.RunFor(time.Second)
		got := string(p.Received())
		if !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\n") || !strings.Contains(got, "\r\nContent-Length: 0\r\n") {
			t.Errorf("%.50q: got %q", rest, got)
		}
		if ends := strings.Contains(got, "\r\nConnection: close\r\n"); ends == kept || p.Ended() == kept {
			t.Errorf("%.50q and %d bytes in all: the answer ends the connection: %v, it has ended: %v", rest, len(rest),
				ends, p.Ended())
		}
		p.Close()
	}
}

// The files of a form are removed when its handler has returned.
func TestFilesOfAForm(t *testing.T) {
	const body = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x\"\r\n\r\ncontent\r\n--b--\r\n"
	t.Setenv("TMPDIR", t.TempDir())
	name := ""
	st := calmStage(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
			return
		}
		f, err := r.MultipartForm.File["f"][0].Open()
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		if file, ok := f.(*os.File); ok {
			name = file.Name()
		}
	})})
	p := st.Dial(st.at)
	fmt.Fprintf(writerFunc(p.Write), "%sContent-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n%s",
		post, len(body), body)
	st.RunFor(time.Second)
	if name == "" {
		t.Fatal("the form had no file on disk")
	}
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is there: %v", name, err)
	}
	p.Close()
}

// With OverloadRefuse the server refuses a request while Workers handlers run, and only then. It
// closes the connection and reads nothing more. Inline tasks do not count.
func TestRefusedWhileOthersRun(t *testing.T) {
	for _, d := range []Dispatch{DispatchPool, DispatchInline} {
		var st *stage
		s := &Server{Dispatch: d, Overload: OverloadRefuse, Workers: 2,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if d == DispatchPool {
					st.wait(10 * time.Millisecond)
				}
			})}
		st = calmStage(t, s)
		for range 2 {
			a, b, c := st.Dial(st.at), st.Dial(st.at), st.Dial(st.at)
			st.ask(a, time.Microsecond, "/")
			st.ask(b, time.Microsecond, "/")
			c.Write([]byte(post + "Content-Length: 6\r\n\r\nabc"))
			st.RunFor(time.Second)
			c.Write([]byte("def"))
			st.RunFor(time.Second)
			want := http.StatusOK
			if d == DispatchPool {
				want = http.StatusServiceUnavailable
			}
			got := []any{codes(t, a.Received()), codes(t, b.Received()), codes(t, c.Received())}
			if fmt.Sprint(got) != fmt.Sprintf("[[200] [200] [%d]]", want) || c.Ended() != (want != 200) {
				t.Errorf("%v: got %v; the connection of the last one has ended: %v", d, got, c.Ended())
			}
			a.Close()
			b.Close()
			c.Close()
		}
		if n := s.state.Load.N.Load(); n != 0 {
			t.Errorf("%v: %d handlers count when all have returned", d, n)
		}
	}
}
