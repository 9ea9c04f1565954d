package load

import "time"

// A pacer finds the rate at which a server takes new connections in without keeping them waiting.
// It begins slowly, and grows while attempts end soon. An attempt that takes longer than keepsUp,
// or fails, and a connection that the server has ended, slow it down. It knows no clock: the caller
// says what time it is.
type pacer struct {
	rate float64   // connections in a second
	next time.Time // before it no attempt begins
	cut  time.Time // of attempts that began before, none slows it down again
	// high is the rate that was too high; 0: none was yet. It falls each time that the pacer is
	// slowed down, but less than the rate does. So the rate comes back soon after a pause of the
	// server.
	high float64
}

const (
	paceFirst = 20.0 // connections in a second
	paceLeast = 1.0
	paceMost  = 1e6
	// keepsUp is how long an attempt takes at most if the server keeps up.
	keepsUp = 250 * time.Millisecond
	// paceSoon and paceLater are the growth of the rate in a second: while it is well below what
	// was too high, and near that.
	paceSoon, paceLater = 1.0, 0.1
	// From the part paceNear of pacer.high on the rate grows slowly. The part paceForget of it is
	// left when the pacer is slowed down once more.
	paceNear, paceForget = 0.85, 0.9
	// paceDown is the part of the rate that is left after an attempt that took too long.
	paceDown = 0.8
	// paceBurst is how many seconds of the rate may be caught up with, after a timer that came
	// late.
	paceBurst = 10 * time.Millisecond
)

func newPacer() *pacer { return &pacer{rate: paceFirst} }

// begin is called when an attempt begins.
func (p *pacer) begin(now time.Time) {
	if earliest := now.Add(-paceBurst); p.next.Before(earliest) {
		p.next = earliest
	}
	p.next = p.next.Add(time.Duration(float64(time.Second) / p.rate))
}

// ended is called when an attempt ends. full says that all places were taken: then places limit
// what is opened, and a higher rate would mean nothing.
func (p *pacer) ended(began, now time.Time, failed, full bool) {
	if !failed && now.Sub(began) <= keepsUp {
		growth := paceSoon
		if p.high > 0 && p.rate >= paceNear*p.high {
			growth = paceLater
		}
		if !full {
			p.rate = min(p.rate+growth, paceMost)
		}
		return
	}
	if !began.Before(p.cut) {
		p.slow(now, paceDown)
	}
}

// lost is called when the server has ended a connection. Many end together, so that only the first
// one of a second counts.
func (p *pacer) lost(now time.Time) {
	if now.Sub(p.cut) >= time.Second {
		p.slow(now, paceDown)
	}
}

func (p *pacer) slow(now time.Time, left float64) {
	p.high = max(p.rate, p.high*paceForget)
	p.rate, p.cut = max(p.rate*left, paceLeast), now
	if at := now.Add(time.Duration(float64(time.Second) / p.rate)); p.next.Before(at) {
		p.next = at
	}
}
