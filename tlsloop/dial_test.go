package tlsloop_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/tlsloop"
)

// authorityConfig has no ServerName: Dial takes it from the address.
func authorityConfig() *tls.Config { return &tls.Config{RootCAs: trusted().pool} }

func TestDial(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		e := start(t, myriad.Config{})
		addr := listen(t, e, patient.Handler(serverConfig(), always(echo())))
		cfg := authorityConfig()
		cfg.MaxVersion = version
		h := newProbe()
		got := make(chan string, 10)
		h.received = func(_ *myriad.Conn, p []byte) { got <- string(p) }
		ctx, cancel := context.WithCancel(t.Context())
		c, err := patient.Dial(ctx, e, "tcp", addr, cfg, h)
		cancel() // it bounds Dial, and not the connection
		if err != nil {
			t.Fatal(err)
		}
		if len(h.opens) != 1 || <-h.opens != c {
			t.Error("Dial has returned before its handler was opened with the same conn")
		}
		if state, ok := tlsloop.State(c); !ok || !state.HandshakeComplete || state.Version != version {
			t.Errorf("State: %+v, %v", state, ok)
		}
		if cfg.ServerName != "" {
			t.Errorf("Dial has changed the Config: ServerName is %q", cfg.ServerName)
		}
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if text := await(t, "answer", got); text != "hello" {
			t.Errorf("got %q", text)
		}
		c.Close()
		if err := await(t, "Closed", h.closes); err != nil {
			t.Errorf("Closed(%v)", err)
		}
	})
}

// A Stream's other end may be read before Dial returns.
func TestDialStream(t *testing.T) {
	e := start(t, myriad.Config{})
	greeter := newProbe()
	greeter.opened = func(c *myriad.Conn) { c.Write([]byte("welcome")) }
	addr := listen(t, e, patient.Handler(serverConfig(), always(greeter)))
	h, nc := myriad.Stream(0)
	defer nc.Close()
	read := make(chan string, 1)
	go func() {
		p := make([]byte, len("welcome"))
		_, _ = io.ReadFull(nc, p)
		read <- string(p)
	}()
	if _, err := patient.Dial(t.Context(), e, "tcp", addr, authorityConfig(), h); err != nil {
		t.Fatal(err)
	}
	if got := await(t, "greeting", read); got != "welcome" {
		t.Errorf("read %q", got)
	}
}

// Dial alone reports a failure.
func TestDialFailures(t *testing.T) {
	h := newProbe()
	t.Cleanup(func() { // the engine has ended
		if len(h.opens)+len(h.closes) > 0 {
			t.Errorf("the handler of failed Dials was opened %d times, and closed %d times", len(h.opens),
				len(h.closes))
		}
	})
	e := start(t, myriad.Config{})
	serves := listen(t, e, patient.Handler(serverConfig(), always(echo())))
	silent := listen(t, e, newProbe())
	hangsUp := newProbe()
	// before, who is late with writing would find a broken pipe
	hangsUp.received = func(c *myriad.Conn, _ []byte) { c.Close() }
	leaves := listen(t, e, hangsUp)
	left := deserted(t)
	for name, test := range map[string]struct {
		addr string
		cfg  *tls.Config
		most time.Duration // Timeout; 0: patience
		ctx  time.Duration
		want func(error) bool
	}{
		"nobody listens":    {addr: left, cfg: authorityConfig(), want: is(syscall.ECONNREFUSED)},
		"unknown authority": {addr: serves, cfg: nil, want: isA[x509.UnknownAuthorityError]},
		"name does not match": {addr: serves, cfg: &tls.Config{RootCAs: trusted().pool, ServerName: "else.test"},
			want: isA[x509.HostnameError]},
		"no version in common": {
			addr: serves, cfg: &tls.Config{RootCAs: trusted().pool, MaxVersion: tls.VersionTLS11,
				MinVersion: tls.VersionTLS10}, want: isA[*net.OpError],
		},
		"hangs up": {addr: leaves, cfg: authorityConfig(), want: is(io.EOF)},
		"no answer": {addr: silent, cfg: authorityConfig(), most: 20 * time.Millisecond,
			want: is(os.ErrDeadlineExceeded)},
		"context ended": {addr: silent, cfg: authorityConfig(), ctx: 20 * time.Millisecond,
			want: is(context.DeadlineExceeded)},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if test.ctx > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, test.ctx)
				defer cancel()
			}
			o := patient
			if test.most > 0 {
				o.Timeout = test.most
			}
			c, err := o.Dial(ctx, e, "tcp", test.addr, test.cfg, h)
			if c != nil || err == nil || !test.want(err) || !strings.Contains(err.Error(),
				": Dial tcp "+test.addr+": ") {
				t.Errorf("Dial: %v, %v", c, err)
			}
		})
	}
}

// deserted is an address without a listener. A connection that was made there stays, so that the
// system gives the port to no other process.
func deserted(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialTCP(t, l.Addr().String())
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return l.Addr().String()
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// An engine that is shut down while Dial waits ends that.
func TestDialAndShutdown(t *testing.T) {
	other := start(t, myriad.Config{})
	h := newProbe()
	addr := listen(t, other, h)
	e, err := myriad.Start(myriad.Config{Loops: 1, Logger: quiet, Driver: os.Getenv("MYRIAD_DRIVER")})
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := patient.Dial(context.Background(), e, "tcp", addr, authorityConfig(), newProbe())
		failed <- err
	}()
	await(t, "connection", h.opens)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := await(t, "end of Dial", failed); err == nil {
		t.Error("Dial has succeeded")
	}
}
