package client

import (
	"fmt"
)

// Leftovers lists what a Transport still counts or keeps when all of its requests are over and its
// idle connections are closed. It is the only view of the simulated worlds into the Transport.
func Leftovers(t *Transport) (left []string) {
	for p := range Done {
		if n := t.figures.calls[p].Load(); n != 0 {
			left = append(left, fmt.Sprintf("%d requests are counted as %s", n, p))
		}
	}
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, h := range t.pool.hosts {
		left = append(left, fmt.Sprintf("host %v: %d connections, %d dials, %d waiting", k, h.conns, h.dialling,
			h.calls.waiting))
	}
	if t.pool.queued != 0 || t.pool.idle != 0 || len(t.cancels) != 0 {
		left = append(left, fmt.Sprintf("%d queued, %d idle, %d with a Cancel channel", t.pool.queued, t.pool.idle,
			len(t.cancels)))
	}
	return left
}

// PoolOf says what a Transport knows of its hosts, for the history of a world that fails.
func PoolOf(t *Transport) (lines []string) {
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	for k, h := range t.pool.hosts {
		spares := 0
		for s := h.spares.oldest; s != nil; s = s.newer {
			spares++
		}
		line := fmt.Sprintf("%v: %d wait, %d of them dialled; %d dials, %d spare, %d at once; %d places, %d drain; "+
			"%d idle", k,
			h.calls.waiting, h.calls.dialled, h.dialling, spares, h.atOnce, h.conns, h.draining, len(h.idle))
		for _, m := range h.muxes {
			line += fmt.Sprintf("; HTTP/2: %d free, proven %v", m.free, m.proven)
		}
		lines = append(lines, line)
	}
	return lines
}
