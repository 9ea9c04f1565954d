package web

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web/internal/exchange"
)

// CloseNotify has one channel for a request, on which true comes when the client goes before the
// handler has ended, and else nothing.
func TestCloseNotifyLikeNetHTTP(t *testing.T) {
	for _, d := range dispatches {
		told := make(chan string, 1)
		sameOnBoth(t, func(s *Server) {
			s.Dispatch = d
			var first <-chan bool
			s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				//lint:ignore SA1019 deprecated, and asked for by frameworks
				n := w.(http.CloseNotifier)
				if r.URL.Path == "/cut" { // no watcher is set when it happens
					_, err := io.ReadAll(r.Body)
					told <- fmt.Sprint(<-n.CloseNotify(), err)
					return
				}
				gone := n.CloseNotify()
				switch r.URL.Path {
				case "/first":
					first = gone
				case "/next":
					fmt.Fprint(w, "of the first ", len(first), ", of this ", len(gone))
				case "/wait":
					told <- fmt.Sprint(<-gone, gone == n.CloseNotify(), len(n.CloseNotify()))
				}
			})
		}, func(t *testing.T, f *fixture, r *record) {
			_, body, _ := strings.Cut(raw(t, f, asks("/first", "")+asks("/next", "Connection: close\r\n"), false),
				"of the")
			r.add("%s", body)
			c := dial(t, f)
			io.WriteString(c, asks("/wait", ""))
			closeWrite(c)
			r.add("%s", receive(t, told))
			c = dial(t, f)
			io.WriteString(c, posts("/cut", "Content-Length: 5\r\n\r\nab"))
			closeWrite(c)
			r.add("%s", receive(t, told))
		})
	}
}

// What is written behind a client's reset meets a broken pipe, in net/http because a read has had
// the reset already.
func TestWritesBehindAResetLikeNetHTTP(t *testing.T) {
	for _, request := range []string{asks("/", ""), posts("/", "Content-Length: 5\r\n\r\nab")} {
		began, ended := make(chan bool), make(chan string)
		set := func(s *Server) {
			s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				began <- true
				_, read := io.ReadAll(r.Body)
				<-r.Context().Done()
				io.WriteString(w, "late")
				err := http.NewResponseController(w).Flush()
				_, again := io.WriteString(w, strings.Repeat("later", 2<<10))
				ended <- fmt.Sprint(read, "; ", err, "; ", again, " ", errors.Is(again, syscall.EPIPE))
			})
		}
		sameOnBoth(t, set, func(t *testing.T, f *fixture, r *record) {
			c := dial(t, f).(*net.TCPConn)
			io.WriteString(c, request)
			receive(t, began)
			c.SetLinger(0)
			c.Close()
			r.add("%s", plain(receive(t, ended)))
		})
	}
}

// Nor does an upgraded connection get 100 Continue.
func TestUpgradeContinuesNothing(t *testing.T) {
	f := serve(t, &Server{Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			x := exchangeOf(w)
			within(t, "the body comes", x.Body.Complete)
			if err := Upgrade(w, []byte(switching), first{"hello"}); err != nil {
				t.Error(err)
			}
			_, _ = r.Body.Read(make([]byte, 9))
			_ = x.Conn().Close()
		})})
	got := raw(t, f, post+"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nab", false)
	if !strings.HasPrefix(got, switching) || strings.Contains(got, "Continue") {
		t.Errorf("got %q", got)
	}
}

// An upgrade waits for room behind what is still to be sent.
func TestUpgradeWaitsForRoom(t *testing.T) {
	begun, free, upgraded := make(chan *exchange.Exchange), make(chan struct{}), make(chan error, 1)
	f := serveOn(t, &Server{Dispatch: DispatchPool,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			x := exchangeOf(w)
			held := make(chan struct{})
			x.Lane.Loop.Post(func() { close(held); <-free }) // so that nothing leaves
			<-held
			w.WriteHeader(http.StatusEarlyHints)
			x.Conn().SetWriteLimit(1)
			begun <- x
			upgraded <- Upgrade(w, []byte(switching), first{"hello"})
		})}, myriad.Config{Loops: 1})
	c := dial(t, f)
	io.WriteString(c, get+end)
	refusedTwice(receive(t, begun))
	close(free)
	if err := receive(t, upgraded); err != nil {
		t.Error(err)
	}
	want := "HTTP/1.1 103 Early Hints\r\n\r\n" + switching
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Errorf("got %q, %v", got, err)
	}
}

// One that fails ends the connection itself.
func TestUpgradeThatFails(t *testing.T) {
	f := serveOn(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := Upgrade(w, []byte(strings.Repeat("x", 4<<10)), first{"hello"}); !errors.Is(err, myriad.ErrTooLarge) {
			t.Errorf("got %v", err)
		}
	})}, myriad.Config{Loops: 1, MaxWrite: 1 << 10})
	if got := raw(t, f, get+end, false); got != "" {
		t.Errorf("got %q", got)
	}
}

// gin's Context.Stream asserts a CloseNotifier.
func TestCloseNotify(t *testing.T) {
	began, told := make(chan struct{}), make(chan bool, 1)
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		//lint:ignore SA1019 deprecated, and asked for by frameworks
		gone := w.(http.CloseNotifier).CloseNotify()
		close(began)
		told <- <-gone
	})})
	c := dial(t, f)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	<-began
	c.Close()
	if !<-told {
		t.Error("told false")
	}
}
