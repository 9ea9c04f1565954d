package natsbus

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/nats-io/nats.go"
)

// This file knows the other nodes: it hears their signs of life, and asks them.

const (
	beatEvery = time.Second
	// goneAfter is how long a node is expected to answer after its last sign of life.
	goneAfter = 4 * time.Second
	// forgottenAfter is how long a node that is gone is shown.
	forgottenAfter = 10 * time.Minute
	// answerTime is how long Ask waits for a node.
	answerTime = 2 * time.Second
	maxNodes   = 256
)

// These are the kinds of questions of this package; kinds of Serve begin with a dash.
const (
	questionPresent = "present"
	questionFollows = "follows"
)

// nodes are the other nodes, by name.
type nodes struct {
	mu    sync.Mutex
	seen  map[string]time.Time
	greet chan struct{} // has room for one: this node has heard one that it did not know
}

func (b *Bus) openNodes() error {
	b.nodes.seen, b.nodes.greet = make(map[string]time.Time), make(chan struct{}, 1)
	if _, err := b.nc.Subscribe(b.prefix+".b", b.hearBeat); err != nil {
		return err
	}
	_, err := b.nc.Subscribe(b.prefix+".q.*", b.hearQuestion)
	return err
}

func (b *Bus) hearBeat(m *nats.Msg) {
	r := reader{rest: m.Data}
	if kind, name, leaving := form(r.byte()), r.text(), r.byte() == 1; kind == formBeat && name != "" && !r.wrong {
		b.nodes.hear(name, leaving)
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

// beat gives signs of life until the bus closes.
func (b *Bus) beat() {
	say := func(leaving byte) {
		_ = b.nc.Publish(b.prefix+".b", append(appendText([]byte{byte(formBeat)}, b.config.Node), leaving))
	}
	timer := time.NewTicker(beatEvery)
	defer timer.Stop()
	for {
		say(0)
		select {
		case <-timer.C:
		case <-b.nodes.greet:
		case <-b.closing:
			say(1)
			return
		}
	}
}

// A service answers questions of one kind.
type service struct{ answer func(body []byte) []byte }

// Serve implements bus.Bus.
func (b *Bus) Serve(kind string, f func(body []byte) []byte) (stop func()) {
	return b.serve("-"+kind, f)
}

func (b *Bus) serve(kind string, f func(body []byte) []byte) (stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := &service{f}
	b.served[kind] = one
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.served[kind] == one { // else another one has taken its place
			delete(b.served, kind)
		}
	}
}

// answer returns the answer of this node: whether it serves the kind, its name, and what it says.
func (b *Bus) answer(kind string, body []byte) []byte {
	b.mu.Lock()
	s := b.served[kind]
	b.mu.Unlock()
	served, said := byte(0), []byte(nil)
	if s != nil {
		served, said = 1, s.answer(slices.Clone(body))
	}
	return append(appendText([]byte{byte(formAnswer), served}, b.config.Node), said...)
}

func (b *Bus) hearQuestion(m *nats.Msg) {
	kind, ok := channelOf(strings.TrimPrefix(m.Subject, b.prefix+".q."))
	if ok && m.Reply != "" {
		_ = b.nc.Publish(m.Reply, b.answer(kind, m.Data)) // the asking node counts this one as missing
	}
}

// Ask implements bus.Bus.
func (b *Bus) Ask(ctx context.Context, kind string, body []byte, each func([]byte)) ([]string, error) {
	if err := b.usable(ctx); err != nil {
		return nil, err
	}
	missing, err := b.ask(ctx, "-"+kind, body, each)
	if err != nil {
		return nil, err
	}
	r := reader{rest: b.answer("-"+kind, body)}
	r.byte()
	if served := r.byte() == 1; served {
		r.text()
		each(r.rest)
	}
	return missing, nil
}

// ask asks all other nodes. It returns when each that is alive has answered, or answerTime has
// passed.
func (b *Bus) ask(ctx context.Context, kind string, body []byte, each func([]byte)) (missing []string, err error) {
	token, err := tokenOf(kind)
	if err != nil {
		return nil, err
	}
	waiting := b.nodes.alive()
	if len(waiting) == 0 && kind != questionFollows { // a node that starts does not know the others yet
		return nil, nil
	}
	answers := make(chan []byte, maxNodes)
	reply, _, drop := b.inbox.expect(func(m *nats.Msg) bool {
		select {
		case answers <- m.Data:
		default: // more answers than nodes
		}
		return m.Header.Get("Status") == "503"
	})
	defer drop()
	if err := b.nc.PublishRequest(b.prefix+".q."+token, reply, body); err != nil {
		return nil, err
	}
	patience := answerTime
	if len(waiting) == 0 {
		patience = beatEvery
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	starting := len(waiting) == 0
	for starting || len(waiting) > 0 {
		select {
		case data := <-answers:
			r := reader{rest: data}
			isAnswer, served, name := form(r.byte()) == formAnswer, r.byte() == 1, r.text()
			if !isAnswer || r.wrong { // NATS says that no node listens
				starting = false
				continue
			}
			delete(waiting, name)
			if served {
				each(r.rest)
			}
		case <-timer.C:
			for name := range waiting {
				missing = append(missing, name)
			}
			slices.Sort(missing)
			return missing, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-b.closing:
			return nil, bus.ErrClosed
		}
	}
	return nil, nil
}

// Present implements bus.Bus. Nothing about presence is stored: nothing can be stale.
func (b *Bus) Present(ctx context.Context, channel string, limit int) (bus.Presence, error) {
	if err := b.usable(ctx); err != nil {
		return bus.Presence{}, err
	}
	if _, err := tokenOf(channel); err != nil {
		return bus.Presence{}, err
	}
	var all bus.Presence
	users := make(map[uint64]struct{})
	add := func(l roll) {
		all.Count += int(l.count)
		for _, u := range l.users {
			users[u] = struct{}{}
		}
		all.Clients = append(all.Clients, l.clients[:min(len(l.clients), limit-len(all.Clients))]...)
	}
	add(rollOf(b.presentHere(channel), limit))
	question := append(binary.AppendUvarint(nil, uint64(limit)), channel...)
	missing, err := b.ask(ctx, questionPresent, question, func(answer []byte) {
		r := reader{rest: answer}
		if l := r.roll(); !r.wrong {
			add(l)
		}
	})
	all.Users, all.Missing = len(users), missing
	return all, err
}

func (b *Bus) presentHere(channel string) (list []bus.ClientInfo) {
	b.registry.tell(channel, func(r bus.Receiver) { list = r.Present(channel, list) })
	return list
}

// rollCall answers who is present here.
func (b *Bus) rollCall(body []byte) []byte {
	r := reader{rest: body}
	limit := r.number()
	return rollOf(b.presentHere(string(r.rest)), int(min(limit, 1<<20))).append(nil)
}

// State implements bus.Bus.
func (b *Bus) State() bus.State {
	state := bus.State{Nodes: []bus.NodeState{{Name: b.config.Node, Self: true}}}
	b.nodes.mu.Lock()
	for name, at := range b.nodes.seen {
		state.Nodes = append(state.Nodes, bus.NodeState{Name: name, Seen: time.Since(at)})
	}
	b.nodes.mu.Unlock()
	b.mu.Lock()
	for _, f := range b.logs {
		l, problem := f.describe()
		state.Logs = append(state.Logs, l)
		if problem != "" && state.Problem == "" {
			state.Problem = "the log " + l.Name + " is not followed: " + problem
		}
	}
	b.mu.Unlock()
	if !b.nc.IsConnected() {
		state.Problem = "the connection to NATS is down"
	}
	slices.SortFunc(state.Nodes, func(a, b bus.NodeState) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(state.Logs, func(a, b bus.LogState) int { return strings.Compare(a.Name, b.Name) })
	return state
}

func (f *follower) describe() (l bus.LogState, problem string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l = bus.LogState{Name: f.stream, Followed: f.last, Last: max(f.last, f.info.State.Last),
		Replicas: f.info.Config.Replicas, Current: 1}
	if c := f.info.Cluster; c != nil {
		l.Leader = c.Leader
		for _, r := range c.Replicas {
			if r.Current && !r.Offline {
				l.Current++
			}
		}
	}
	return l, f.problem
}

// lookAroundEvery is how often the node looks for logs that it does not follow, and for leaders to
// move.
const lookAroundEvery = 10 * time.Second

// lookAround follows logs that other nodes have made, for a retention that this node's
// configuration does not have yet: a channel may be published to under both.
func (b *Bus) lookAround() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timer := time.NewTicker(lookAroundEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			b.followOthers(ctx)
			b.balance(ctx)
		case <-b.closing:
			return
		}
	}
}

func (b *Bus) followOthers(ctx context.Context) {
	var answer struct {
		Streams []string `json:"streams"`
	}
	filter := map[string]string{"subject": b.prefix + ".h.>"}
	if b.call(ctx, "STREAM.NAMES", filter, &answer) != nil {
		return // the next look tries again
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range answer.Streams {
		id, ok := parseStream(b.prefix, name)
		if ok && !b.closed && len(b.logs) < maxRetentions*b.config.Parts {
			b.followLocked(id)
		}
	}
}
