package natsbus

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/receipts"
)

// A Bus is a bus.Bus over NATS. See the package's documentation. Its methods are those of its
// parts. A part knows the parts that it needs, and no Bus.
type Bus struct {
	config   Config
	registry *registry // the receivers of this node
	services *services // what it answers
	receipts *receipts.Table[bus.Position]
	gate     gate // of the calls

	current sync.Mutex // held to replace session; calls that the gate has let in need no lock
	*session
	awaits bool        // it takes the place of one in another process; Freeze and Thaw use it
	thaws  atomic.Bool // Thaw has been called since Freeze

	reopening sync.WaitGroup
	closeOnce sync.Once
}

var _ bus.Bus = (*Bus)(nil)

// Open connects to NATS and returns when the node hears the others. The logs of c.Retentions are
// followed soon after; see State.
func Open(ctx context.Context, c Config) (*Bus, error) {
	b, err := newBus(c)
	if err != nil {
		return nil, err
	}
	if err := b.open(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	if err := b.begin(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func newBus(c Config) (*Bus, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	b := &Bus{config: c, registry: newRegistry(), services: newServices(),
		receipts: &receipts.Table[bus.Position]{Most: c.IDs}}
	b.session = newSession(b)
	for _, keep := range c.Retentions {
		if _, err := b.logs.follow(keep); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	return b, nil
}

// now returns the session, to a caller that the gate has not let in.
func (b *Bus) now() *session {
	b.current.Lock()
	defer b.current.Unlock()
	return b.session
}

// Subscribe implements bus.Bus.
func (b *Bus) Subscribe(ctx context.Context, t bus.Topic, r bus.Receiver) error {
	if _, err := tokenOf(t.Name); err != nil {
		return err
	}
	if err := b.gate.enterRestored(ctx); err != nil {
		return err
	}
	defer b.gate.leave()
	if t.Keep.Size <= 0 {
		return b.registry.add(t.Name, r, func(*topic) {})
	}
	f, err := b.now().logs.placed(ctx, t)
	if err != nil {
		return err
	}
	return f.subscribe(t.Name, r)
}

// Unsubscribe implements bus.Bus.
func (b *Bus) Unsubscribe(channel string, r bus.Receiver) { b.registry.remove(channel, r) }

// Publish implements bus.Bus.
func (b *Bus) Publish(ctx context.Context, t bus.Topic, p bus.Publication) (bus.Position, error) {
	if err := b.gate.enter(ctx); err != nil {
		return bus.Position{}, err
	}
	defer b.gate.leave()
	return b.publisher.publish(ctx, t, p)
}

// Announce implements bus.Bus. It does not wait: while the bus is frozen, notices wait.
func (b *Bus) Announce(ctx context.Context, channel string, n bus.Notice) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if entered, err := b.gate.enterOr(func() { b.announceLate(channel, n) }); !entered {
		return err
	}
	defer b.gate.leave()
	return b.passing.announce(channel, n)
}

// announceLate announces what has waited, when the other nodes can hear it.
func (b *Bus) announceLate(channel string, n bus.Notice) {
	ctx, cancel := context.WithTimeout(context.Background(), holdFor)
	defer cancel()
	if b.gate.enter(ctx) != nil {
		return
	}
	defer b.gate.leave()
	if b.passing.holds.enter(ctx) != nil {
		return
	}
	defer b.passing.holds.leave()
	_ = b.passing.announce(channel, n) // it may be lost
}

// History implements bus.Bus. Top is the position to which this node has followed the log.
func (b *Bus) History(ctx context.Context, t bus.Topic, q bus.Query) (bus.History, error) {
	if err := b.gate.enter(ctx); err != nil {
		return bus.History{}, err
	}
	defer b.gate.leave()
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
	if err := b.gate.enter(ctx); err != nil {
		return err
	}
	defer b.gate.leave()
	return b.publisher.forget(ctx, t)
}

// Present implements bus.Bus. Nothing about presence is stored: nothing can be stale.
func (b *Bus) Present(ctx context.Context, channel string, limit int) (bus.Presence, error) {
	if err := b.gate.enter(ctx); err != nil {
		return bus.Presence{}, err
	}
	defer b.gate.leave()
	if _, err := tokenOf(channel); err != nil {
		return bus.Presence{}, err
	}
	return b.presence.of(ctx, channel, limit)
}

// Serve implements bus.Bus.
func (b *Bus) Serve(kind string, f func(body []byte) []byte) (stop func()) {
	return b.services.serve("-"+kind, f)
}

// Ask implements bus.Bus.
func (b *Bus) Ask(ctx context.Context, kind string, body []byte, each func([]byte)) ([]string, error) {
	if err := b.gate.enter(ctx); err != nil {
		return nil, err
	}
	defer b.gate.leave()
	return b.questions.askAll(ctx, "-"+kind, body, each)
}

// State implements bus.Bus.
func (b *Bus) State() bus.State {
	s := b.now()
	state := bus.State{Nodes: s.nodes.states()}
	state.Logs, state.Problem = s.logs.states()
	switch {
	case !s.isOpen():
		state.Problem = "the node moves to another process"
	case !s.nc.IsConnected():
		state.Problem = "the connection to NATS is down"
	}
	slices.SortFunc(state.Nodes, func(a, b bus.NodeState) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(state.Logs, func(a, b bus.LogState) int { return strings.Compare(a.Name, b.Name) })
	return state
}

// StepDown makes other nodes lead the logs that this one leads, as far as there are others. It
// returns when they do, or ctx ends.
func (b *Bus) StepDown(ctx context.Context) {
	if s := b.now(); s.isOpen() {
		s.leaders.stepDownAll(ctx)
	}
}

// Close implements bus.Bus.
func (b *Bus) Close() error {
	b.closeOnce.Do(func() {
		b.gate.close()
		b.reopening.Wait()
		b.now().end(false)
		b.registry.close()
		if b.awaits && b.config.Server != nil { // the other process goes on with the node
			b.config.Server.Shutdown()
		}
	})
	return nil
}
