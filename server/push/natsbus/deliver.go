package natsbus

import (
	"strings"
	"sync"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A delivery hands the messages of a log to this node's receivers, in order, and tells the callers
// of Publish. The follower's work is held while its methods run, except those of awaitedPublishes.
type delivery struct {
	*logName
	*conn
	awaitedPublishes
	registry *registry
	progress *progress
	epochs   *epochKeeper
	probe    string // the follower's own marks have subjects that begin with it
}

func newDelivery(name *logName, c *conn, r *registry, p *progress, e *epochKeeper) *delivery {
	d := &delivery{logName: name, conn: c, registry: r, progress: p, epochs: e}
	d.pending, d.elected = make(map[string]*pendingPublish), make(chan struct{})
	return d
}

// take delivers messages that were read. If one before them is missing, the log has dropped it, and
// it may have been any channel's: they all have to recover.
func (d *delivery) take(list []stored) {
	for _, s := range list {
		last, _ := d.progress.position()
		switch {
		case s.seq <= last:
			continue
		case s.seq > last+1:
			d.log.Warn("natsbus: a log has dropped messages before this node had them", "log", d.stream,
				"after", last, "until", s.seq)
			d.loseAll()
		}
		d.next(s)
	}
	if n := len(list); n > 0 {
		d.progress.replicaHas(list[n-1].seq)
	}
}

// next hands the next message to its receivers.
func (d *delivery) next(s stored) {
	advance := func() { d.progress.advance(s) }
	token := strings.TrimPrefix(s.subject, d.stored)
	r := reader{rest: s.data}
	name, isChannel := channelOf(token)
	switch kind := form(r.byte()); {
	case !isChannel && kind == formEpoch:
		if epoch := r.text(); epoch != "" {
			d.changeEpoch(epoch, s.seq, advance)
		} else {
			advance()
		}
	case !isChannel:
		if kind == formMark && !strings.HasPrefix(token, d.probe) {
			d.epochs.hearMark(s.at)
		}
		advance()
	case kind == formPublication:
		p := r.publication()
		p.Version = nil
		p.Position = bus.Position{Offset: s.seq, Epoch: channelEpoch(d.progress.epochNow(), name)}
		if r.wrong {
			d.skip(s, name, advance)
			break
		}
		d.registry.receive(name, p, advance)
	case kind == formForgotten:
		advance()
	default:
		d.skip(s, name, advance)
	}
	epoch := d.progress.epochNow()
	d.epochs.seal.write(epoch, s.seq, s.at)
	if s.id != "" {
		d.settle(s.id, bus.Position{Offset: s.seq, Epoch: channelEpoch(epoch, name)})
	}
}

// skip passes over a message of a channel that this node does not understand, such as one of a
// later version. Its receivers have missed something.
func (d *delivery) skip(s stored, channel string, advance func()) {
	advance()
	d.log.Warn("natsbus: a message of a log is not understood: do all nodes have the same version?", "log", d.stream,
		"seq", s.seq, "channel", channel)
	d.registry.tell(channel, func(r bus.Receiver) { r.Lost(channel) })
}

// changeEpoch handles a message that begins or confirms an epoch.
func (d *delivery) changeEpoch(epoch string, seq uint64, advance func()) {
	changed := d.progress.setEpoch(epoch, seq)
	advance()
	if changed {
		d.loseAll()
	}
}

// skipTo goes on after seq, although messages before it are missing.
func (d *delivery) skipTo(seq uint64) {
	d.progress.skipTo(seq)
	d.loseAll()
}

// loseAll tells all receivers of this log's channels that they have missed something.
func (d *delivery) loseAll() { d.registry.lostLog(d.stream, d.progress.epochNow()) }

// awaitedPublishes are the publications that this node has sent to the log and waits to receive, by
// ID.
type awaitedPublishes struct {
	mu      sync.Mutex
	pending map[string]*pendingPublish
	elected chan struct{} // closed and replaced when the log has another leader
}

// leaderElected returns what is closed when the log has another leader than now.
func (a *awaitedPublishes) leaderElected() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.elected
}

// setElected says that the log has another leader.
func (a *awaitedPublishes) setElected() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.elected)
	a.elected = make(chan struct{})
}

// A pendingPublish is a publication that this node waits to receive.
type pendingPublish struct {
	position chan bus.Position // has room for one
}

// expect makes settle report the message with that ID. The caller must call forget.
func (a *awaitedPublishes) expect(id string) (w *pendingPublish, forget func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w = a.pending[id]
	if w != nil { // the same ID twice at once, without the table of receipts between them
		return &pendingPublish{position: w.position}, func() {}
	}
	w = &pendingPublish{position: make(chan bus.Position, 1)}
	a.pending[id] = w
	return w, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.pending, id)
	}
}

// settle reports that the message with that ID has been delivered.
func (a *awaitedPublishes) settle(id string, at bus.Position) {
	a.mu.Lock()
	w := a.pending[id]
	a.mu.Unlock()
	if w != nil {
		select {
		case w.position <- at:
		default:
		}
	}
}
