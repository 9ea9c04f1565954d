package mux

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// This file finds out that a peer is gone although its connection is not: Config.SendPing and
// Conn.Probe. Without them nothing is set and nothing is kept.

var (
	errSilent  = errors.New("mux: the peer has not answered a PING in time")
	errStalled = fmt.Errorf("mux: the peer takes no output: %w", os.ErrDeadlineExceeded)
)

// healthPing is the data of a PING of Config.SendPing, and of Probe.
var healthPing = [8]byte{'m', 'y', 'r', 'i', 'a', 'd', 0, 2}

// health is what a connection knows of its peer's life.
type health struct {
	heard     uint32 // when the peer has sent something, in ms; with Config.SendPing, or behind mostProbes
	ping      pingState
	probes    uint8 // PINGs of Probe since HEADERS or DATA came
	heardMore bool  // something has come behind SETTINGS since handshakeTimer was set
}

// A pingState is the PING that is out. Whatever the peer sends ends it.
type pingState uint8

const (
	noPing    pingState = iota
	probeOut            // by Probe, when none was out
	healthOut           // by Config.SendPing, whether or not one of Probe was out
)

// mostProbes is how many PINGs Probe sends while no HEADERS or DATA comes.
const mostProbes = 2

// heardNow notes that the peer has sent something.
func (h *health) heardNow(cfg *Config) {
	h.ping, h.heardMore = noPing, true
	if cfg.SendPing > 0 || h.probes == mostProbes {
		h.heard = uint32(cfg.Now().UnixMilli())
	}
}

// silent is how long the peer has sent nothing.
func (h *health) silent(cfg *Config) time.Duration {
	return time.Duration(uint32(cfg.Now().UnixMilli())-h.heard) * time.Millisecond
}
