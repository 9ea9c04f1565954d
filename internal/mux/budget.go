package mux

import (
	"crypto/rand"
	"io"

	"github.com/myriad-go/myriad/internal/h2"
)

// This file bounds what a peer makes our end do for nothing. ADR 27 has the reasons.

// The kinds of h2.Budgets. Beyond each the connection ends with ENHANCE_YOUR_CALM. A client counts
// glitches alone.
const (
	// cancels are streams that the peer resets, and those that are refused because too many
	// handlers of such streams run. A round trip pays for them: see cancelled.
	cancels = iota
	// mistakes are streams that the peer has our end reset: RFC 9113 says so of what it has sent,
	// or it has opened more than Config.Streams.
	mistakes
	// glitches are frames that have no use: PING, SETTINGS, PRIORITY, empty DATA, WINDOW_UPDATE,
	// and what comes for streams that are closed. DATA that our end sends pays for some of them,
	// and so does each stream.
	glitches
)

const (
	// glitchBurst and glitchRate are the limit of glitches.
	glitchBurst, glitchRate = 10_000, 330
	// leastMistakes, leastMistakeRate and leastCancels are the limits where few streams may be
	// open.
	leastMistakes, leastMistakeRate, leastCancels = 200, 20, 500
	// dataPays is for WINDOW_UPDATE of the stream and of the connection. Peers that read DATA in
	// small pieces send one of each for a piece, Go's for 4 KiB; so each pieceSize bytes pay for
	// another one.
	dataPays, pieceSize = 2, 256
	// streamPays is for PRIORITY, PRIORITY_UPDATE, and frames that cross the end of a stream.
	streamPays = 4
	// emptyCost is what empty DATA from a client counts of the glitches; servers send it when
	// handlers flush nothing, and for them it counts as one. settingsCost is for a SETTINGS frame,
	// earlyCost for a stream beyond a limit that the peer does not know yet.
	emptyCost, settingsCost, earlyCost = 10, 20, 10
)

// firstCancels is how many streams may be cancelled within the first round trip: four times what
// may be open.
func (cfg *Config) firstCancels() int { return max(leastCancels, 4*cfg.paced()) }

// savedCancels is how many more a connection saves up. A client whose network stands still for
// seconds sends what it has cancelled meanwhile at once.
func (cfg *Config) savedCancels() int { return min(1000*cfg.paced(), h2.MaxBurst-cfg.firstCancels()) }

// paced is Config.Streams, as far as the limits grow with it.
func (cfg *Config) paced() int { return min(cfg.streams(), h2.MaxBurst/8) }

// limits are in the order of the kinds.
func (cfg *Config) limits() h2.Limits {
	n := cfg.paced()
	return h2.Limits{
		{Burst: cfg.firstCancels() + cfg.savedCancels(), Rate: 10 * n},
		{Burst: max(leastMistakes, 2*n), Rate: max(leastMistakeRate, n/4)},
		{Burst: glitchBurst, Rate: glitchRate},
	}
}

// beginBudgets has saved nothing up.
func (c *Conn) beginBudgets() {
	if !c.cfg.Client {
		limits := c.cfg.limits()
		c.budgets.Spend(cancels, 0, &limits, c.now())
		c.budgets.Spend(cancels, c.cfg.savedCancels(), &limits, c.now())
	}
}

// glitch counts something without use for us.
func (c *Conn) glitch(n int) error { return c.spend(glitches, n, "too many frames without use") }

// mistaken counts a stream that was reset for what the peer has done: a peer that makes us reset
// streams is no better than one that resets them (CVE-2025-8671).
func (c *Conn) mistaken() error {
	if c.cfg.Client {
		return nil
	}
	return c.spend(mistakes, 1, "too many streams are reset for mistakes")
}

// cancelled counts a stream that the peer has given up. A client that waits for answers has at most
// Config.Streams requests handled in a round trip, however fast it is; one that cancels could have
// any number (CVE-2023-44487). So a PING leaves now and then, and its answer gives back twice what
// was counted before it left.
func (c *Conn) cancelled() error {
	if c.cfg.Client {
		return nil
	}
	a := c.act
	if a.cancels++; !c.is(paying) && a.cancels >= c.cfg.firstCancels()/4 {
		source := c.cfg.Random
		if source == nil {
			source = rand.Reader
		}
		if _, err := io.ReadFull(source, a.receipt[:]); err == nil {
			c.bits |= paying
			a.paying, a.cancels = a.cancels, 0
			a.control = h2.AppendPing(a.control, a.receipt, false)
		}
	}
	return c.spend(cancels, 1, "too many streams are cancelled within a round trip")
}

// paid reports whether a PING's ACK is the one that cancelled waits for. A client cannot know its
// data before it has come.
func (c *Conn) paid(data [8]byte) bool {
	if !c.is(paying) || data != c.act.receipt {
		return false
	}
	c.bits &^= paying
	c.budgets.Return(cancels, 2*c.act.paying)
	return true
}

func (c *Conn) spend(kind, n int, reason string) error {
	limits := c.cfg.limits()
	if !c.budgets.Spend(kind, n, &limits, c.now()) {
		return c.connError(h2.EnhanceYourCalm, reason)
	}
	return nil
}
