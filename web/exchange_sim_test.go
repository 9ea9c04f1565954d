package web

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
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
			e, ok := exchange.NetError(x.Conn(), tc.op, tc.err).(*net.OpError)
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
