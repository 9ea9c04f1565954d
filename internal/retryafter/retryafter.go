// Package retryafter says when clients that a server has refused may come back. It spreads them
// over the time in which the server can take them, so that they do not come back together.
package retryafter

import (
	"math"
	"strconv"
	"sync"
	"time"
)

const (
	// Least and Most bound what a client is told.
	Least = time.Second
	Most  = time.Minute

	// sample is the least time over which a Spread measures how many a server takes.
	sample = time.Second
	// quiet is how long no client was refused before the next refusal counts as the first of
	// another crowd. What the server took meanwhile says how many came, and not how many it can
	// take.
	quiet = 10 * time.Second
	// assumed is how many clients a second a server can take at least, as long as it was not
	// measured while it refuses others.
	assumed = 1000
	// slowest is the least that a server is taken to be able to take in a second.
	slowest = 1
)

// A Spread gives each client that is refused a time of its own to come back. A server has one for
// each kind of request that it refuses. Each client gets the next free time: there are as many in a
// second as the server has served lately in one. A random part of up to a second comes on top of
// it.
//
// If the times up to Most are given away, a client gets a random one. Then more come than can be
// served, and some of them are refused once more.
//
// Any goroutine may call its methods. The zero Spread does not work: see New.
type Spread struct {
	served func() uint64

	mu     sync.Mutex
	chance uint64    // of the next client, as a part of 1<<64
	rate   float64   // clients that can be served in a second
	free   time.Time // the next time that no client was told
	began  time.Time // of the sample
	before uint64    // served by then
	last   time.Time // the last refusal
}

// New returns a Spread for a server that has served so many clients since its start. served is
// called by Wait, under a lock: it only reads. Servers with the same seed tell their clients the
// same, so a seed is random, or differs otherwise.
func New(seed uint64, served func() uint64) *Spread {
	return &Spread{chance: seed, served: served, rate: assumed}
}

// Wait returns how long a client waits that is refused now: from Least to Most.
func (s *Spread) Wait(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measure(now)
	chance := s.next()
	if s.free.Before(now) {
		s.free = now
	}
	wait := s.free.Sub(now) + Least
	if wait > Most-time.Second {
		return Least + time.Duration(chance*float64(Most-Least))
	}
	s.free = s.free.Add(time.Duration(float64(time.Second) / s.rate))
	return wait + time.Duration(chance*float64(time.Second))
}

// next returns a number from 0 to 1. A sequence in steps of the golden ratio is as even as numbers
// can be, whatever part of it is taken; its beginning is random.
func (s *Spread) next() float64 {
	const golden = 0x9e3779b97f4a7c15
	s.chance += golden
	return float64(s.chance>>11) / (1 << 53)
}

// measure estimates how many clients the server can take in a second. While it refuses some, that
// is how many it serves. The estimate rises at once, and falls to a quarter in each sample at most:
// a server that has stopped for some seconds has not become slow.
func (s *Spread) measure(now time.Time) {
	passed := now.Sub(s.began)
	idle := now.Sub(s.last) >= quiet
	if !idle && passed < sample {
		s.last = now
		return
	}
	served := s.served()
	measured := float64(served-s.before) / passed.Seconds()
	switch {
	case s.last.IsZero():
	case idle:
		s.rate = max(measured, assumed)
	default:
		s.rate = max(measured, s.rate/4, slowest)
	}
	s.last, s.began, s.before = now, now, served
}

// Seconds returns wait as the field Retry-After has it (RFC 9110 section 10.2.3): in whole seconds,
// rounded up, at least one.
func Seconds(wait time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(wait.Seconds()))))
}
