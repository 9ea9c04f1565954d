package tlsloop_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/tlsloop"
)

// accepting is a listener of net/http's kind on a loopback port.
func accepting(t *testing.T, wrap func(l net.Listener, cfg *tls.Config) net.Listener) (net.Listener, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return wrap(l, serverConfig()), l.Addr().String()
}

// A conn of NewListener is used as any *tls.Conn, then adopted: what it has read ahead, what the
// caller has, and what comes later arrive in order, and it costs no goroutine. One of
// tls.NewListener works too, with two of them.
func TestAdopt(t *testing.T) {
	for name, wrap := range map[string]func(l net.Listener, cfg *tls.Config) net.Listener{
		"tlsloop.NewListener": tlsloop.NewListener, "tls.NewListener": tls.NewListener,
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, myriad.Config{})
			l, addr := accepting(t, wrap)
			client := make(chan *tls.Conn, 1)
			go func() {
				tc := tls.Client(dialTCP(t, addr), clientConfig())
				io.WriteString(tc, "used unread ")
				io.WriteString(tc, "ahead ")
				client <- tc
			}()
			nc, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			expect(t, nc, "used ")
			unread := make([]byte, len("unread"))
			if _, err := io.ReadFull(nc, unread); err != nil {
				t.Fatal(err)
			}
			tc := await(t, "client", client)
			before := runtime.NumGoroutine()
			h := echo()
			c, err := e.Adopt(nc, unread, h)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write([]byte("hello ")); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len("hello unread ahead "))
			if _, err := io.ReadFull(tc, got); err != nil {
				t.Fatal(err)
			}
			// the loop may begin before this goroutine writes
			if strings.Replace(string(got), "hello ", "", 1) != "unread ahead " {
				t.Errorf("read %q", got)
			}
			if name == "tlsloop.NewListener" && !goroutinePerConn {
				eventually(t, "no goroutine is there for it", func() bool { return runtime.NumGoroutine() <= before })
			}
			send(t, tc, "later")
			expect(t, tc, "later")
			tc.CloseWrite()
			if rest, err := io.ReadAll(tc); len(rest) > 0 || err != nil {
				t.Errorf("at the end: %q, %v", rest, err)
			}
			tc.NetConn().Close()
			if err := await(t, "Closed", h.closes); err != nil {
				t.Errorf("Closed(%v)", err)
			}
		})
	}
}

// One that has not made its handshake makes it on the loop.
func TestAdoptBeforeTheHandshake(t *testing.T) {
	e := start(t, myriad.Config{})
	l, addr := accepting(t, tlsloop.NewListener)
	h := echo()
	go func() {
		nc, err := l.Accept()
		if err == nil {
			_, err = e.Adopt(nc, nil, h)
		}
		if err != nil {
			t.Error(err)
		}
	}()
	tc := dial(t, addr, clientConfig())
	send(t, tc, "hello")
	expect(t, tc, "hello")
	state, ok := tlsloop.State(await(t, "Opened", h.opens))
	if !ok || !state.HandshakeComplete || state.ServerName != "localhost" {
		t.Errorf("State: %+v, %v", state, ok)
	}
}

// A client's handler whose handshake fails is opened and closed once.
func TestClientFailure(t *testing.T) {
	e := start(t, myriad.Config{})
	addr := listen(t, e, patient.Handler(serverConfig(), always(echo())))
	h := newProbe()
	c, err := e.Dial(t.Context(), "tcp", addr, patient.Client(&tls.Config{ServerName: "localhost"}, h))
	if err != nil {
		t.Fatal(err)
	}
	err = await(t, "Closed", h.closes)
	var unknown *tls.CertificateVerificationError
	if !errorsAs(err, &unknown) {
		t.Errorf("Closed(%v)", err)
	}
	if len(h.opens) != 1 {
		t.Errorf("opened %d times", len(h.opens))
	}
	if _, err := c.Write([]byte("x")); err == nil {
		t.Error("Write after the failure")
	}
}

// A handshake that is closed here has failed for a server, who is told before Options.Closed; a
// client who gives up need not be told.
func TestClosedInItsHandshake(t *testing.T) {
	e := start(t, myriad.Config{})
	said := make(chan string, 10)
	o := tlsloop.Options{
		Timeout: patience,
		Failed:  func(_ *myriad.Conn, _ error, times uint64) { said <- fmt.Sprint("failed ", times) },
		Closed:  func(_ *myriad.Conn, err error) { said <- fmt.Sprint("closed ", err) },
	}
	front := told{o.Handler(serverConfig(), always(echo())), make(chan *myriad.Conn, 1)}
	nc := dialTCP(t, listen(t, e, front))
	await(t, "connection", front.opens).Close()
	expect(t, nc, "")
	nc.Close()
	if first, then := await(t, "failure", said), await(t, "end", said); first != "failed 1" || then != "closed <nil>" {
		t.Errorf("the server: %s, %s", first, then)
	}
	silent, h := newProbe(), newProbe()
	c, err := e.Dial(t.Context(), "tcp", listen(t, e, silent), o.Client(clientConfig(), h))
	if err != nil {
		t.Fatal(err)
	}
	await(t, "connection", silent.opens)
	c.Close()
	if first := await(t, "end", said); first != "closed <nil>" {
		t.Errorf("the client: %s", first)
	}
	if err := await(t, "Closed", h.closes); !errors.Is(err, myriad.ErrClosed) || len(said) > 0 {
		t.Errorf("Closed(%v), %d more", err, len(said))
	}
}

// A told handler tells the test of a conn.
type told struct {
	myriad.Handler
	opens chan *myriad.Conn
}

func (h told) Opened(c *myriad.Conn) {
	h.Handler.Opened(c)
	h.opens <- c
}
