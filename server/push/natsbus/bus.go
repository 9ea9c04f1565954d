package natsbus

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A Bus is a bus.Bus over NATS. See the package's documentation. Its methods are those of its
// parts. A part knows the parts that it needs, and no Bus.
type Bus struct {
	*conn               // to NATS, and what all parts know
	inbox     *inbox    // the answers to this node's requests
	registry  *registry // the receivers of this node
	nodes     *nodes    // the other nodes
	questions *questions
	presence  *presence
	logs      *logs // a follower for each
	leaders   *leaders
	passing   *passing // what no log keeps
	publisher *publisher

	background sync.WaitGroup
	closeOnce  sync.Once
}

var _ bus.Bus = (*Bus)(nil)

// Open connects to NATS and returns when the node hears the others. The logs of c.Retentions are
// followed soon after; see State.
func Open(ctx context.Context, c Config) (*Bus, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	b := newBus(c)
	if err := b.open(c, b.logs.forgetReplicas); err != nil {
		b.disconnect()
		return nil, err
	}
	if err := b.begin(ctx, c.Retentions); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// newBus makes the parts, which are not connected yet.
func newBus(c Config) *Bus {
	n := newConn(c)
	b := &Bus{conn: n, inbox: newInbox(n), registry: newRegistry(), nodes: newNodes(n)}
	b.questions = newQuestions(b.inbox, b.nodes)
	b.presence = &presence{registry: b.registry, questions: b.questions}
	j := &jetStream{b.inbox}
	s := &streams{jetStream: j, config: c, nodes: b.nodes}
	b.logs = newLogs(s, b.questions, b.registry, c.Parts)
	b.leaders = &leaders{streams: s, logs: b.logs}
	b.passing = &passing{conn: n, registry: b.registry}
	b.publisher = newPublisher(j, b.logs, b.passing, c.IDs)
	return b
}

// begin subscribes, and starts what runs in the background.
func (b *Bus) begin(ctx context.Context, retentions []bus.Retention) error {
	for _, open := range []func() error{b.inbox.open, b.nodes.open, b.questions.open} {
		if err := open(); err != nil {
			return err
		}
	}
	b.questions.serve(questionPresent, b.presence.answer)
	b.questions.serve(questionFollows, b.logs.vouch)
	if err := b.passing.open(); err != nil {
		return err
	}
	if err := b.flush(ctx); err != nil {
		return err
	}
	for _, keep := range retentions {
		if _, err := b.logs.follow(keep); err != nil {
			return err
		}
	}
	b.background.Go(b.nodes.beat)
	b.background.Go(b.lookAround)
	return nil
}

// lookAroundEvery is how often the node looks for logs that it does not follow, and for leaders to
// move.
const lookAroundEvery = 10 * time.Second

// lookAround looks around until the bus closes.
func (b *Bus) lookAround() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timer := time.NewTicker(lookAroundEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			b.logs.followOthers(ctx)
			b.leaders.balance(ctx)
		case <-b.closing:
			return
		}
	}
}

// Subscribe implements bus.Bus.
func (b *Bus) Subscribe(ctx context.Context, t bus.Topic, r bus.Receiver) error {
	if err := b.usable(ctx); err != nil {
		return err
	}
	if _, err := tokenOf(t.Name); err != nil {
		return err
	}
	if t.Keep.Size <= 0 {
		return b.registry.add(t.Name, r, func(*topic) {})
	}
	f, err := b.logs.live(ctx, t)
	if err != nil {
		return err
	}
	return f.subscribe(t.Name, r)
}

// Unsubscribe implements bus.Bus.
func (b *Bus) Unsubscribe(channel string, r bus.Receiver) { b.registry.remove(channel, r) }

// Publish implements bus.Bus.
func (b *Bus) Publish(ctx context.Context, t bus.Topic, p bus.Publication) (bus.Position, error) {
	if err := b.usable(ctx); err != nil {
		return bus.Position{}, err
	}
	return b.publisher.publish(ctx, t, p)
}

// Announce implements bus.Bus.
func (b *Bus) Announce(ctx context.Context, channel string, n bus.Notice) error {
	if err := b.usable(ctx); err != nil {
		return err
	}
	return b.passing.announce(channel, n)
}

// History implements bus.Bus. Top is the position to which this node has followed the log.
func (b *Bus) History(ctx context.Context, t bus.Topic, q bus.Query) (bus.History, error) {
	if err := b.usable(ctx); err != nil {
		return bus.History{}, err
	}
	if t.Keep.Size <= 0 {
		return bus.History{}, bus.ErrNoHistory
	}
	token, err := tokenOf(t.Name)
	if err != nil {
		return bus.History{}, err
	}
	f, err := b.logs.live(ctx, t)
	if err != nil {
		return bus.History{}, err
	}
	return f.history.read(ctx, t, token, q)
}

// Forget implements bus.Bus.
func (b *Bus) Forget(ctx context.Context, t bus.Topic) error {
	if err := b.usable(ctx); err != nil {
		return err
	}
	return b.publisher.forget(ctx, t)
}

// Present implements bus.Bus. Nothing about presence is stored: nothing can be stale.
func (b *Bus) Present(ctx context.Context, channel string, limit int) (bus.Presence, error) {
	if err := b.usable(ctx); err != nil {
		return bus.Presence{}, err
	}
	if _, err := tokenOf(channel); err != nil {
		return bus.Presence{}, err
	}
	return b.presence.of(ctx, channel, limit)
}

// Serve implements bus.Bus.
func (b *Bus) Serve(kind string, f func(body []byte) []byte) (stop func()) {
	return b.questions.serve("-"+kind, f)
}

// Ask implements bus.Bus.
func (b *Bus) Ask(ctx context.Context, kind string, body []byte, each func([]byte)) ([]string, error) {
	if err := b.usable(ctx); err != nil {
		return nil, err
	}
	return b.questions.askAll(ctx, "-"+kind, body, each)
}

// State implements bus.Bus.
func (b *Bus) State() bus.State {
	state := bus.State{Nodes: b.nodes.states()}
	state.Logs, state.Problem = b.logs.states()
	if !b.nc.IsConnected() {
		state.Problem = "the connection to NATS is down"
	}
	slices.SortFunc(state.Nodes, func(a, b bus.NodeState) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(state.Logs, func(a, b bus.LogState) int { return strings.Compare(a.Name, b.Name) })
	return state
}

// StepDown makes other nodes lead the logs that this one leads, as far as there are others. It
// returns when they do, or ctx ends.
func (b *Bus) StepDown(ctx context.Context) { b.leaders.stepDownAll(ctx) }

// Close implements bus.Bus.
func (b *Bus) Close() error {
	b.closeOnce.Do(func() {
		close(b.closing)
		b.logs.close()
		b.background.Wait()
		b.registry.close()
		b.disconnect()
	})
	return nil
}
