package mux

import (
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
func (cfg *Config) paced() int { return min(cfg.Streams, h2.MaxBurst/8) }

// budgetLimits are in the order of the kinds.
func (cfg *Config) budgetLimits() h2.Limits {
	n := cfg.paced()
	return h2.Limits{
		{Burst: cfg.firstCancels() + cfg.savedCancels(), Rate: 10 * n},
		{Burst: max(leastMistakes, 2*n), Rate: max(leastMistakeRate, n/4)},
		{Burst: glitchBurst, Rate: glitchRate},
	}
}

// budgets are those of a connection.
type budgets struct{ h2.Budgets }

// begin has saved nothing up.
func (b *budgets) begin(cfg *Config) {
	if !cfg.Client {
		now := cfg.Now().UnixMilli()
		b.Spend(cancels, 0, &cfg.limits, now)
		b.Spend(cancels, cfg.savedCancels(), &cfg.limits, now)
	}
}

// glitch counts n frames without use for us.
func (b *budgets) glitch(cfg *Config, n int) error {
	return b.take(cfg, glitches, n, "too many frames without use")
}

// mistaken counts a stream that was reset for what the peer has done: a peer that makes us reset
// streams is no better than one that resets them (CVE-2025-8671).
func (b *budgets) mistaken(cfg *Config) error {
	if cfg.Client {
		return nil
	}
	return b.take(cfg, mistakes, 1, "too many streams are reset for mistakes")
}

// cancelled counts a stream that the peer has given up.
func (b *budgets) cancelled(cfg *Config) error {
	if cfg.Client {
		return nil
	}
	return b.take(cfg, cancels, 1, "too many streams are cancelled within a round trip")
}

func (b *budgets) take(cfg *Config, kind, n int, reason string) error {
	if !b.Spend(kind, n, &cfg.limits, cfg.Now().UnixMilli()) {
		return connError(h2.EnhanceYourCalm, reason)
	}
	return nil
}

// A payment is how a peer pays for the streams that it cancels. A client that waits for answers has
// at most Config.Streams requests handled in a round trip, however fast it is; one that cancels
// could have any number (CVE-2023-44487). So a PING leaves now and then, and its answer gives back
// twice what was counted before it left. The PING's data is random: a client cannot know it before
// it has come.
type payment struct {
	due   int // cancelled streams that no PING is to pay for yet
	under int // those that the PING which is under way pays for; 0: none is
	ping  [8]byte
}

// cancelled counts a stream. It reports whether a PING with p.ping is to leave now.
func (p *payment) cancelled(cfg *Config) (leaves bool) {
	if p.due++; cfg.Client || p.under > 0 || p.due < cfg.firstCancels()/4 {
		return false
	}
	if _, err := io.ReadFull(cfg.Random, p.ping[:]); err != nil {
		return false
	}
	p.under, p.due = p.due, 0
	return true
}

// acknowledged is how much the acknowledgement of a PING gives back.
func (p *payment) acknowledged(data [8]byte) (back int) {
	if data == p.ping {
		back, p.under = 2*p.under, 0
	}
	return back
}
