package tlsloop_test

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/tlsloop"
)

// Beside a loop that is late, handshakes have no more of the processor than newcomers may have,
// although they are computed on another goroutine.
func TestHandshakesCountAsNewcomers(t *testing.T) {
	const members, newcomers, span = 100, 2000, 20 * time.Second
	o := sim.Calm()
	o.MaxSteps, o.Backlog, o.Accepts, o.TraceLines = 1<<30, 1<<14, 64, 64
	w := sim.New(1, o)
	e, err := myriad.Start(myriad.Config{System: w, Logger: quiet, Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := e.Listen("tcp", "127.0.0.1:0", echo())
	if err != nil {
		t.Fatal(err)
	}
	computed := time.Duration(0)
	secure, err := e.Listen("tcp", "127.0.0.1:443", tlsloop.Handler(&tls.Config{
		Certificates: []tls.Certificate{evenPair()},
		Time: func() time.Time { // crypto/tls asks for it in the middle of each handshake
			w.Work(10 * time.Millisecond)
			computed += 10 * time.Millisecond
			return w.Now()
		},
	}, always(echo())))
	if err != nil {
		t.Fatal(err)
	}
	answered := 0
	var peers []*sim.Peer
	for range members {
		p := w.Dial(plain.Addr())
		p.OnReceived = func([]byte) {
			answered++
			p.TakeReceived()
			p.Write([]byte("again"))
		}
		p.Write([]byte("first"))
		peers = append(peers, p)
	}
	w.SetCosts(sim.Costs{Event: 10 * time.Microsecond, Send: 10 * time.Microsecond})
	w.RunFor(100 * time.Millisecond)
	w.SetCosts(sim.Costs{Event: time.Millisecond, Send: time.Millisecond, Accept: time.Millisecond})
	w.RunFor(2 * time.Second)
	answered = 0
	w.RunFor(span)
	alone := answered
	first := hello(t)
	for range newcomers {
		p := w.Dial(secure.Addr())
		p.OnReceived = func([]byte) { p.CloseWrite() }
		p.Write(first)
		peers = append(peers, p)
	}
	w.RunFor(5 * time.Second)
	answered, computed = 0, 0
	w.RunFor(span)
	if answered < alone*7/8*95/100 || computed < span/50 {
		t.Errorf("members have %d answers in %v beside handshakes, and had %d; handshakes have had %v", answered, span,
			alone, computed)
	}
	t.Logf("members have %d answers in %v beside handshakes, and had %d; handshakes have had %v", answered, span,
		alone, computed)
	for _, p := range peers {
		p.OnReceived = nil
		p.Close()
	}
	w.SetCosts(sim.Costs{})
	w.Run()
	end(t, w, e)
}
