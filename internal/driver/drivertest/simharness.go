package drivertest

import (
	"net"

	"github.com/myriad-go/myriad/internal/driver/sim"
)

// SimHarness makes peers in a simulated world.
func SimHarness(w *sim.World) Harness { return simHarness{w} }

type simHarness struct{ w *sim.World }

func (h simHarness) Dial(addr net.Addr) Peer { return h.w.Dial(addr) }

func (h simHarness) Listen(network, addr string) (Acceptor, error) {
	a := &simAcceptor{}
	l, err := h.w.ListenPeer(network, addr, func(p *sim.Peer) { a.peers = append(a.peers, p) })
	if err != nil {
		return nil, err
	}
	a.Listener = l
	return a, nil
}

type simAcceptor struct {
	*sim.Listener
	peers []Peer
}

func (a *simAcceptor) Accepted() []Peer { return a.peers }

// Exhaust implements Harness.
func (h simHarness) Exhaust() (restore func(), ok bool) {
	h.w.ExhaustFiles(true)
	return func() { h.w.ExhaustFiles(false) }, true
}
