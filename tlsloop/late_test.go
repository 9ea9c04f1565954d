package tlsloop_test

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/tlsloop"
)

// A handshake that waits for a goroutine of this process when its time is over has its time once
// more. One whose callback takes too long has not.
func TestHandshakeThatWaitsIsSpared(t *testing.T) {
	const atOnce, waiting, timeout = 256, 40, time.Second
	calm := sim.Calm()
	calm.Backlog = atOnce + waiting // all of them come before one is accepted
	w := sim.New(1, calm)
	e, err := myriad.Start(myriad.Config{System: w, Logger: quiet, Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	var parked []driver.Parker
	cert, released := evenPair(), false
	cfg := &tls.Config{Time: w.Now, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if !released {
			p := w.NewParker()
			parked = append(parked, p)
			p.Park()
		}
		return &cert, nil
	}}
	o := tlsloop.Options{Timeout: timeout, Failed: func(*myriad.Conn, error, uint64) {}}
	ln, err := e.Listen("tcp", "127.0.0.1:443", o.Handler(cfg, always(echo())))
	if err != nil {
		t.Fatal(err)
	}
	peers := make([]*sim.Peer, atOnce+waiting)
	for i := range peers {
		peers[i] = w.Dial(ln.Addr())
		peers[i].Write(hello(t))
	}
	failed := func() (n int) {
		for _, p := range peers {
			if p.Ended() || p.Closed() {
				n++
			}
		}
		return n
	}
	w.RunFor(timeout + timeout/2)
	if len(parked) != atOnce || failed() != atOnce {
		t.Errorf("%d callbacks are called and %d handshakes have failed, want %d and as many", len(parked), failed(),
			atOnce)
	}
	released = true
	for _, p := range parked {
		p.Unpark()
	}
	w.RunFor(timeout / 4)
	answered := 0
	for _, p := range peers {
		if p.Count() > 1000 { // more than an alert
			answered++
		}
	}
	if answered != waiting {
		t.Errorf("%d clients were answered, want the %d that have waited", answered, waiting)
	}
	if failed() != atOnce {
		t.Errorf("%d handshakes have failed before twice their time, want %d", failed(), atOnce)
	}
	w.RunFor(timeout) // the clients say no more
	if failed() != len(peers) {
		t.Errorf("%d handshakes have failed, want all", failed())
	}
	for _, p := range peers {
		p.Close()
	}
	w.RunFor(time.Minute)
	if err := e.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	w.Run()
	w.Check(t)
}
