package tlsloop_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/tlsloop"
)

// evenPair has keys whose signatures are all of one length, so that runs of one seed differ in
// their bytes only.
var evenPair = sync.OnceValue(func() tls.Certificate {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0),
		NotAfter: time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

// seeds is how many worlds a simulation runs in.
func seeds(t *testing.T, usual, full uint64) uint64 {
	t.Helper()
	if testing.Short() {
		return 10
	}
	return soak.Size(t, usual, full)
}

// Client and server of the engine in one world, whose network delivers late, in pieces and out of
// step, with small queues: what was sent arrives, both ends end in order, nothing is left.
func TestSimulated(t *testing.T) {
	seeds := seeds(t, 20, 60)
	versions(t, func(t *testing.T, version uint16) {
		for seed := range seeds {
			if broken := simulated(t, seed, version, sim.Lossless()); broken > 0 {
				t.Errorf("seed %d: %d of 3 broke", seed, broken)
			}
			if t.Failed() {
				return
			}
		}
	})
}

// The same where connections are reset in any phase, and dials and accepts fail: an exchange is
// whole, or both ends hear that it is not; and nothing is left.
func TestSimulatedFaults(t *testing.T) {
	seeds := seeds(t, 50, 200)
	versions(t, func(t *testing.T, version uint16) {
		broken := 0
		for seed := range seeds {
			if broken += simulated(t, seed, version, sim.Options{Reset: 0.3, Dial: 0.1, Accept: 0.1}); t.Failed() {
				return
			}
		}
		if broken < int(seeds)/5 || broken > int(seeds)*2 {
			t.Errorf("%d of %d exchanges broke: the faults are not what this is about", broken, 3*seeds)
		}
	})
}

// errWrong is of an exchange that neither gave what was sent nor said that it had broken.
var errWrong = errors.New("not what was sent")

// simulated counts the exchanges that broke.
func simulated(t *testing.T, seed uint64, version uint16, o sim.Options) (broken int) {
	w := sim.New(seed, o)
	e, err := myriad.Start(myriad.Config{System: w, Logger: quiet, Loops: 2, WriteLimit: 4000, ReadBuffer: 1500,
		MaxWrite: 200_000})
	if err != nil {
		t.Fatal(err)
	}
	report := func(err error) {
		if errors.Is(err, errWrong) || err != nil && o.Reset < 0 {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	server := &tls.Config{Certificates: []tls.Certificate{evenPair()}, Time: w.Now}
	ln, err := e.Listen("tcp", "127.0.0.1:443", tlsloop.Handler(server, func(tls.ConnectionState) myriad.Handler {
		h, nc := myriad.Stream(1000)
		w.Go(func() {
			_, err := io.Copy(nc, struct{ io.Reader }{nc})
			report(errors.Join(err, nc.Close()))
		})
		return h
	}))
	if err != nil {
		t.Fatal(err)
	}
	client := &tls.Config{InsecureSkipVerify: true, MaxVersion: version, Time: w.Now}
	ended := 0
	for i := range 3 {
		w.Go(func() {
			err := exchange(w, e, ln.Addr().String(), client, pattern(int(seed*97)%5000+i*70_000))
			if report(err); err != nil {
				broken++
			}
			ended++
		})
	}
	if !w.RunUntil(func() bool { return ended == 3 }) {
		t.Errorf("seed %d: the world fell quiet after %d of 3", seed, ended)
	}
	if err := e.Shutdown(context.Background()); err != nil {
		t.Errorf("seed %d: Shutdown: %v", seed, err)
	}
	w.Run()
	w.Check(t)
	return broken
}

// exchange sends msg, early bytes first, and reads it back to the end.
func exchange(w *sim.World, e *myriad.Engine, addr string, cfg *tls.Config, msg string) error {
	h, nc := myriad.Stream(1000)
	c, err := e.Dial(context.Background(), "tcp", addr, tlsloop.Client(cfg, h))
	if err != nil {
		return errors.Join(err, nc.Close())
	}
	if _, err := c.Write([]byte("early")); err != nil {
		return errors.Join(err, nc.Close())
	}
	var sent error
	w.Go(func() {
		_, err := io.WriteString(nc, msg)
		sent = errors.Join(err, nc.(interface{ CloseWrite() error }).CloseWrite())
	})
	got, err := io.ReadAll(nc)
	if whole := "early" + msg; !strings.HasPrefix(whole, string(got)) || err == nil && len(got) < len(whole) {
		err = fmt.Errorf("%d bytes of %d: %w", len(got), len(whole), errWrong)
	}
	return errors.Join(err, sent, net.Conn(nc).Close())
}

// A peer that ends before its handshake has is not waited for.
func TestEndBeforeTheHandshake(t *testing.T) {
	first := hello(t)
	for name, sent := range map[string][]byte{"nothing": nil, "half": first[:len(first)/2], "hello": first,
		"garbage": []byte("GET / HTTP/1.1\r\n\r\n")} {
		t.Run(name, func(t *testing.T) {
			w, e := calm(t)
			ln, err := e.Listen("tcp", "127.0.0.1:443",
				tlsloop.Handler(&tls.Config{Certificates: []tls.Certificate{evenPair()}, Time: w.Now}, always(echo())))
			if err != nil {
				t.Fatal(err)
			}
			p := w.Dial(ln.Addr())
			p.Write(sent)
			p.CloseWrite()
			w.RunFor(100 * time.Millisecond)
			if st := e.Stats(); st.Accepts != 1 || st.Conns != 0 {
				t.Errorf("%d accepted, %d open", st.Accepts, st.Conns)
			}
			end(t, w, e)
		})
	}
}

// What a conn has taken and not encoded when it is aborted is not counted as with the driver,
// neither before nor after.
func TestQueuedOfTheAborted(t *testing.T) {
	w, e := calm(t)
	ln, err := e.Listen("tcp", "127.0.0.1:443", newProbe())
	if err != nil {
		t.Fatal(err)
	}
	w.Go(func() {
		c, err := e.Dial(context.Background(), "tcp", ln.Addr().String(),
			tlsloop.Client(&tls.Config{InsecureSkipVerify: true, Time: w.Now}, newProbe()))
		if err != nil {
			t.Error(err)
			return
		}
		if _, err = c.Write(make([]byte, 100_000)); err != nil {
			t.Error(err)
		}
		c.Abort(nil)
	})
	w.Run()
	if st := e.Stats(); st.Queued != 0 || st.Conns != 0 {
		t.Errorf("%d bytes are queued for %d conns", st.Queued, st.Conns)
	}
	end(t, w, e)
}

// calm is a world without faults, with an engine.
func calm(t *testing.T) (*sim.World, *myriad.Engine) {
	w := sim.New(1, sim.Calm())
	e, err := myriad.Start(myriad.Config{System: w, Logger: quiet, Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	return w, e
}

func end(t *testing.T, w *sim.World, e *myriad.Engine) {
	if err := e.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	w.Run()
	w.Check(t)
}
