package natsbus

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/nats-io/nats.go"
)

const (
	beatEvery = time.Second
	// goneAfter is how long a node is expected to answer after its last sign of life.
	goneAfter = 4 * time.Second
	// awayFor is the same for a node that moves to another process.
	awayFor = 15 * time.Second
	// forgottenAfter is how long a node that is gone is shown.
	forgottenAfter = 10 * time.Minute
	maxNodes       = 256
)

// A sign is what a node says of itself.
type sign uint32

const (
	signAlive   sign = iota
	signLeaving      // it ends
	signAway         // it lets others lead, and may be silent for a moment: it moves to another process
	signBack         // it has begun, and asks the others for a sign; it is signBehind, too
	signBehind       // its part of the logs has not caught up: it is not to lead
)

// nodes are the other nodes: this node hears their signs of life.
type nodes struct {
	*conn
	say     atomic.Uint32 // the sign that this node gives
	current atomic.Bool   // it may lead

	mu       sync.Mutex
	seen     map[string]seenNode
	greet    chan struct{}     // has room for one: this node has heard one that it did not know
	returned func(name string) // is called for one that was away or unheard, when it is so no more; or nil
}

// A seenNode is a node that was heard.
type seenNode struct {
	at     time.Time // its last sign of life
	away   bool      // that was signAway
	behind bool      // that was signBack or signBehind
	since  time.Time // since when it is neither away nor behind
	// unheard says that an earlier session has heard it, and this one has not: what this node sends
	// may not reach it.
	unheard bool
}

// settleTime is how long a node has to be back before it may lead, and before another one may move:
// it has to be known to the elections of all logs.
const settleTime = 3 * time.Second

// isFit reports whether it may lead.
func (s *seenNode) isFit(now time.Time) bool {
	return !s.away && !s.behind && now.Sub(s.since) >= settleTime
}

// isAlive reports whether it is expected to answer.
func (s *seenNode) isAlive(now time.Time) bool {
	if s.away || s.unheard {
		return now.Sub(s.at) < awayFor
	}
	return now.Sub(s.at) < goneAfter
}

func newNodes(c *conn) *nodes {
	return &nodes{conn: c, seen: make(map[string]seenNode), greet: make(chan struct{}, 1)}
}

// open subscribes to the signs of life.
func (n *nodes) open() error {
	_, err := n.nc.Subscribe(n.prefix+".b", n.receive)
	return err
}

func (n *nodes) receive(m *nats.Msg) {
	r := reader{rest: m.Data}
	if kind, name, said := form(r.byte()), r.text(), sign(r.byte()); kind == formBeat && name != "" && !r.wrong {
		n.hear(name, said)
	}
}

func (n *nodes) hear(name string, said sign) {
	n.mu.Lock()
	before, known := n.seen[name]
	if said == signLeaving {
		delete(n.seen, name)
	} else if known || len(n.seen) < maxNodes {
		now := time.Now()
		s := seenNode{at: now, away: said == signAway, behind: said == signBack || said == signBehind, since: now}
		if known && !before.away && !before.behind {
			s.since = before.since
		}
		n.seen[name] = s
		if !known || said == signBack { // it may have just started, and not know this one
			n.sayAgain()
		}
	}
	returned := n.returned
	n.mu.Unlock()
	if returned != nil && (before.away || before.unheard) && said != signAway {
		returned(name)
	}
}

// sayAgain has beat give a sign of life now.
func (n *nodes) sayAgain() {
	select {
	case n.greet <- struct{}{}:
	default:
	}
}

// backAgain is how soon a node that is back says so again at first: its routes may not be there
// yet.
const backAgain = 5 * time.Millisecond

// beat gives signs of life until the session ends.
func (n *nodes) beat() {
	pause := beatEvery
	if sign(n.say.Load()) == signBack {
		pause = backAgain
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		n.sayOnce()
		select {
		case <-timer.C:
			pause = min(2*pause, beatEvery)
			timer.Reset(pause)
		case <-n.greet:
		case <-n.closing:
			n.sayOnce()
			return
		}
		if pause == beatEvery || len(n.unheard()) == 0 { // the others have been heard, as far as they are there
			pause = beatEvery
			if n.say.CompareAndSwap(uint32(signBack), uint32(signBehind)) && n.current.Load() {
				n.setCurrent()
			}
		}
	}
}

// setCurrent says that this node may lead.
func (n *nodes) setCurrent() {
	n.current.Store(true)
	if n.say.CompareAndSwap(uint32(signBehind), uint32(signAlive)) {
		n.sayAgain()
	}
}

// goAway says that this node moves, and returns what it has said before.
func (n *nodes) goAway() (before sign) { return sign(n.say.Swap(uint32(signAway))) }

// stay undoes goAway: this node may lead again, unless its part of the logs has not caught up.
func (n *nodes) stay() {
	if n.say.CompareAndSwap(uint32(signAway), uint32(signBehind)) && n.current.Load() {
		n.setCurrent()
	}
	n.sayAgain()
}

func (n *nodes) sayOnce() {
	_ = n.nc.Publish(n.prefix+".b", append(appendText([]byte{byte(formBeat)}, n.node), byte(n.say.Load())))
}

// alive returns the nodes that are expected to answer.
func (n *nodes) alive() map[string]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	list, now := make(map[string]bool), time.Now()
	for name, s := range n.seen {
		if s.isAlive(now) {
			list[name] = true
		} else if now.Sub(s.at) > forgottenAfter {
			delete(n.seen, name)
		}
	}
	return list
}

// unheard returns the nodes that an earlier session has heard, and this one has not.
func (n *nodes) unheard() map[string]bool {
	return n.those(func(s *seenNode) bool { return s.unheard })
}

// unfit returns the nodes that are not to lead now.
func (n *nodes) unfit() map[string]bool {
	now := time.Now()
	return n.those(func(s *seenNode) bool { return !s.isFit(now) })
}

func (n *nodes) those(are func(s *seenNode) bool) map[string]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := make(map[string]bool)
	for name, s := range n.seen {
		if are(&s) {
			list[name] = true
		}
	}
	return list
}

// all returns the nodes that were heard.
func (n *nodes) all() map[string]seenNode {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.seen)
}

// goOn has a node that is back expect those that an earlier session has heard.
func (n *nodes) goOn(list map[string]seenNode) {
	n.say.Store(uint32(signBack))
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for name, s := range list {
		s.unheard = s.isAlive(now)
		n.seen[name] = s
	}
}

// states returns this node and the others, those that are gone included.
func (n *nodes) states() []bus.NodeState {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := []bus.NodeState{{Name: n.node, Self: true}}
	for name, s := range n.seen {
		list = append(list, bus.NodeState{Name: name, Seen: time.Since(s.at)})
	}
	return list
}
