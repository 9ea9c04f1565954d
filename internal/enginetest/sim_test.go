package enginetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
)

// seeds is how many worlds each simulation runs in.
func seeds(t *testing.T) uint64 {
	t.Helper()
	if testing.Short() {
		return 20
	}
	return soak.Size(t, uint64(50), 200)
}

// newWorld returns a simulated world. It panics if one of its goroutines is stuck.
func newWorld(seed uint64, o sim.Options) *sim.World {
	o.Stall = cmp.Or(o.Stall, soak.Patience(30*time.Second))
	return sim.New(seed, o)
}

// A simulated world with an engine in it.
type simulation struct {
	*sim.World
	t *testing.T
	e *myriad.Engine
}

func simulate(t *testing.T, seed uint64, o sim.Options, cfg myriad.Config) *simulation {
	t.Helper()
	w := newWorld(seed, o)
	if cfg.System = w; cfg.Logger == nil {
		cfg.Logger = quiet
	}
	if cfg.Loops == 0 {
		cfg.Loops = 2
	}
	e, err := myriad.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &simulation{w, t, e}
}

// finish shuts the engine down, and looks for what the world still holds. It returns the hash of
// the run.
func (s *simulation) finish() uint64 {
	s.t.Helper()
	if err := s.e.Shutdown(atLength(s.t)); err != nil {
		s.t.Errorf("seed %d: Shutdown: %v", s.Seed(), err)
	}
	s.Run()
	s.Check(s.t)
	return s.Hash()
}

// talk has peers send to an echo server whose limits are small, in pieces, some of them without
// reading for a while.
func talk(t *testing.T, seed uint64, o sim.Options, set setting) (hash uint64) {
	t.Helper()
	s := simulate(t, seed, o, myriad.Config{WriteLimit: 3000, ReadBuffer: 2000, LingerTimeout: time.Minute})
	ln := set.listen(t, s.e, newEchoAll())
	type client struct {
		*sim.Peer
		msg     []byte
		in, out xor
	}
	var clients []*client
	for i := range 6 {
		c := &client{Peer: s.Dial(ln.Addr()), msg: pattern(int(seed*31)%700 + i*i*i*300)}
		wire := c.msg
		if set.layered {
			wire = c.out.apply(c.msg)
		}
		half := len(wire) / 2
		c.Write(wire[:half])
		c.OnOpen = func() { c.Write(wire[half:]); c.CloseWrite() }
		if i%3 == 2 {
			c.StopReading()
		}
		clients = append(clients, c)
	}
	s.RunFor(2 * time.Second)
	for _, c := range clients {
		c.Resume()
	}
	s.Run()
	for i, c := range clients {
		got := c.Received()
		if set.layered {
			got = c.in.apply(got)
		}
		switch complete := bytes.Equal(got, c.msg) && c.Ended() && c.Err() == nil; {
		case !bytes.HasPrefix(c.msg, got):
			t.Errorf("seed %d: peer %d: %d bytes that are no prefix of what it sent", seed, i, len(got))
		case !complete && !c.Faulted():
			t.Errorf("seed %d: peer %d: %d of %d bytes, ended %v, %v", seed, i, len(got), len(c.msg), c.Ended(),
				c.Err())
		}
	}
	return s.finish()
}

func TestSimulatedEcho(t *testing.T) {
	worlds := map[string]sim.Options{
		"lossless": sim.Lossless(),
		"faulty":   {},
		"hostile":  {Reset: 0.4, Accept: 0.2, Dial: 0.1},
	}
	eachLayer(t, func(t *testing.T, set setting) {
		for name, o := range worlds {
			t.Run(name, func(t *testing.T) {
				for seed := range seeds(t) / 2 {
					if talk(t, seed, o, set); t.Failed() {
						return
					}
				}
			})
		}
	})
}

func TestSameSeedSameRun(t *testing.T) {
	eachLayer(t, func(t *testing.T, set setting) {
		seen := map[uint64]bool{}
		for seed := range seeds(t) / 4 {
			first, second := talk(t, seed, sim.Options{}, set), talk(t, seed, sim.Options{}, set)
			if first != second {
				t.Fatalf("seed %d: hash %x, then %x", seed, first, second)
			}
			seen[first] = true
		}
		if len(seen) < int(seeds(t)/4) {
			t.Errorf("%d seeds had only %d different runs", seeds(t)/4, len(seen))
		}
	})
}

// Streams over the engine's own Dial, with blocking goroutines of the world on both ends.
func TestSimulatedStreams(t *testing.T) {
	eachLayer(t, func(t *testing.T, set setting) {
		for seed := range seeds(t) {
			if streams(t, seed, set); t.Failed() {
				return
			}
		}
	})
}

func streams(t *testing.T, seed uint64, set setting) {
	s := simulate(t, seed, sim.Lossless(), myriad.Config{WriteLimit: 2000, ReadBuffer: 1500, MaxWrite: 5000})
	report := func(err error) {
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	accepted := acceptStreams{func(nc net.Conn) {
		s.Go(func() {
			_, err := io.Copy(nc, struct{ io.Reader }{nc})
			report(errors.Join(err, nc.Close()))
		})
	}}
	ln := set.listen(t, s.e, accepted)
	ended := 0
	for i := range 3 {
		msg := pattern(int(seed*97)%5000 + i*4000)
		h, nc := myriad.Stream(1000)
		s.Go(func() {
			if _, err := s.e.Dial(context.Background(), "tcp", ln.Addr().String(), set.wrap(h)); err != nil {
				report(err)
				return
			}
			s.Go(func() {
				_, err := nc.Write(msg)
				report(errors.Join(err, nc.(interface{ CloseWrite() error }).CloseWrite()))
			})
			got, err := io.ReadAll(nc)
			if err == nil && !bytes.Equal(got, msg) {
				err = fmt.Errorf("stream %d: %d bytes that are not the %d sent", i, len(got), len(msg))
			}
			report(errors.Join(err, nc.Close()))
			ended++
		})
	}
	if !s.RunUntil(func() bool { return ended == 3 }) {
		t.Errorf("seed %d: the world fell quiet after %d of 3 streams", seed, ended)
	}
	s.finish()
}

// acceptStreams gives each conn of a listener to a goroutine.
type acceptStreams struct{ serve func(nc net.Conn) }

func (a acceptStreams) Opened(c *myriad.Conn) {
	h, nc := myriad.Stream(700)
	c.SetHandler(h, nil)
	a.serve(nc)
}

func (acceptStreams) Received(*myriad.Conn, []byte) {}
func (acceptStreams) Closed(*myriad.Conn, error)    {}
