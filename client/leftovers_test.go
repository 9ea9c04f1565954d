package client

import "fmt"

// Leftovers lists what a Transport still counts or keeps when all of its requests are over and its
// idle connections are closed. It is the only view of the simulated worlds into the Transport.
func Leftovers(t *Transport) (left []string) {
	for p := range Done {
		if n := t.figures.calls[p].Load(); n != 0 {
			left = append(left, fmt.Sprintf("%d requests are counted as %s", n, p))
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, h := range t.hosts {
		left = append(left, fmt.Sprintf("host %v: %d connections, %d dials, %d waiting", k, h.conns, h.dialing,
			h.waiting))
	}
	if t.queued != 0 || t.idle != 0 || len(t.calls) != 0 {
		left = append(left, fmt.Sprintf("%d queued, %d idle, %d with a Cancel channel", t.queued, t.idle, len(t.calls)))
	}
	return left
}
