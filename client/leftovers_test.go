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
		left = append(left, fmt.Sprintf("host %v: %d connections, %d dials, %d waiting", k, h.conns, h.dialling, h.waiting))
	}
	if t.pool.queued != 0 || t.pool.idle != 0 || len(t.cancels) != 0 {
		left = append(left, fmt.Sprintf("%d queued, %d idle, %d with a Cancel channel", t.pool.queued, t.pool.idle, len(t.cancels)))
	}
	return left
}
