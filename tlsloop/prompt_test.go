package tlsloop_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/tlsloop"
)

// tick is how late a timer of a conn may be.
const tick = 10 * time.Millisecond

// A client learns of the end of its handshake at once: when Timeout is over, and when the server's
// certificate is refused, although the server neither takes the alert nor closes.
func TestClientFailsPromptly(t *testing.T) {
	for _, timeout := range []time.Duration{50 * time.Millisecond, 700 * time.Millisecond, 3 * time.Second} {
		w := sim.New(1, sim.Calm())
		e, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ln, err := w.ListenPeer("tcp", "127.0.0.1:0", func(*sim.Peer) {}) // it says nothing, and does not close
		if err != nil {
			t.Fatal(err)
		}
		began, took := w.Now(), time.Duration(-1)
		w.Go(func() {
			_, err = tlsloop.Options{Timeout: timeout}.Dial(context.Background(), e, "tcp", ln.Addr().String(),
				&tls.Config{}, newProbe())
			took = w.Now().Sub(began)
		})
		w.RunFor(time.Minute)
		if !errors.Is(err, os.ErrDeadlineExceeded) || took < timeout || took > timeout+tick {
			t.Errorf("with a timeout of %v, after %v: %v", timeout, took, err)
		}
		if n := e.Stats().Conns; n != 0 {
			t.Errorf("%d connections are left", n)
		}
		if err := errors.Join(ln.Close(), e.Shutdown(context.Background())); err != nil {
			t.Error(err)
		}
		w.Run()
		w.Check(t)
	}
}

// So it is with a failure that is not a timeout. The alert is sent nevertheless.
func TestClientDistrustsPromptly(t *testing.T) {
	w := sim.New(1, sim.Calm())
	e, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{evenPair()}}
	server, err := e.Listen("tcp", "127.0.0.1:0", patient.Handler(cfg, always(echo())))
	if err != nil {
		t.Fatal(err)
	}
	// What stands between lets the server have no more than the ClientHello.
	sent := 0
	between, err := w.ListenPeer("tcp", "127.0.0.1:0", func(front *sim.Peer) {
		back := w.Dial(server.Addr())
		front.OnReceived = func(b []byte) {
			if sent++; sent == 1 {
				back.Write(b)
			}
		}
		back.OnReceived = front.Write
		front.OnEnded = back.Close
		front.OnClosed = func(error) { back.Close() }
	})
	if err != nil {
		t.Fatal(err)
	}
	h, closed := newProbe(), 0
	o := tlsloop.Options{Failed: func(*myriad.Conn, error, uint64) {}, Closed: func(_ *myriad.Conn, err error) {
		if closed++; err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("Closed(%v)", err)
		}
	}}
	began, took := w.Now(), time.Duration(-1)
	w.Go(func() {
		_, err = o.Dial(context.Background(), e, "tcp", between.Addr().String(), &tls.Config{}, h)
		took = w.Now().Sub(began)
	})
	w.RunFor(time.Minute)
	_, distrusted := errors.AsType[*tls.CertificateVerificationError](err)
	if !distrusted || took > tick || closed != 1 {
		t.Errorf("after %v, and %d calls of Closed: %v", took, closed, err)
	}
	if sent != 2 {
		t.Errorf("%d flights were sent: the second is the alert", sent)
	}
	if err := errors.Join(between.Close(), server.Close(), e.Shutdown(context.Background())); err != nil {
		t.Error(err)
	}
	w.Run()
	w.Check(t)
}
