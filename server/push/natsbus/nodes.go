package natsbus

import (
	"sync"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/nats-io/nats.go"
)

const (
	beatEvery = time.Second
	// goneAfter is how long a node is expected to answer after its last sign of life.
	goneAfter = 4 * time.Second
	// forgottenAfter is how long a node that is gone is shown.
	forgottenAfter = 10 * time.Minute
	maxNodes       = 256
)

// nodes are the other nodes: this node hears their signs of life.
type nodes struct {
	*conn

	mu    sync.Mutex
	seen  map[string]time.Time // the last sign of life, by name
	greet chan struct{}        // has room for one: this node has heard one that it did not know
}

func newNodes(c *conn) *nodes {
	return &nodes{conn: c, seen: make(map[string]time.Time), greet: make(chan struct{}, 1)}
}

// open subscribes to the signs of life.
func (n *nodes) open() error {
	_, err := n.nc.Subscribe(n.prefix+".b", n.receive)
	return err
}

func (n *nodes) receive(m *nats.Msg) {
	r := reader{rest: m.Data}
	if kind, name, leaving := form(r.byte()), r.text(), r.byte() == 1; kind == formBeat && name != "" && !r.wrong {
		n.hear(name, leaving)
	}
}

func (n *nodes) hear(name string, leaving bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.seen[name]; leaving {
		delete(n.seen, name)
	} else if known || len(n.seen) < maxNodes {
		n.seen[name] = time.Now()
		if !known { // it may have just started, and not know this one
			select {
			case n.greet <- struct{}{}:
			default:
			}
		}
	}
}

// beat gives signs of life until the bus closes.
func (n *nodes) beat() {
	say := func(leaving byte) {
		_ = n.nc.Publish(n.prefix+".b", append(appendText([]byte{byte(formBeat)}, n.node), leaving))
	}
	timer := time.NewTicker(beatEvery)
	defer timer.Stop()
	for {
		say(0)
		select {
		case <-timer.C:
		case <-n.greet:
		case <-n.closing:
			say(1)
			return
		}
	}
}

// alive returns the nodes that are expected to answer.
func (n *nodes) alive() map[string]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := make(map[string]bool)
	for name, at := range n.seen {
		switch age := time.Since(at); {
		case age < goneAfter:
			list[name] = true
		case age > forgottenAfter:
			delete(n.seen, name)
		}
	}
	return list
}

// states returns this node and the others, those that are gone included.
func (n *nodes) states() []bus.NodeState {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := []bus.NodeState{{Name: n.node, Self: true}}
	for name, at := range n.seen {
		list = append(list, bus.NodeState{Name: name, Seen: time.Since(at)})
	}
	return list
}
