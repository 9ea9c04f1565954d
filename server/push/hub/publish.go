package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/server/push/bus"
)

// A busClient is the hub's use of the bus: it checks publications, bounds how long a call waits for
// other nodes, and counts.
type busClient struct {
	*node
	bus     bus.Bus
	owns    bool      // close closes bus
	atClose []func()  // complete when the doors are open
	local   bus.Local // bus, if it is one; else nil
	gate    *gate     // each publish runs inside of it
	backlog *backlog  // whether publications are taken
	figures *figures

	refusals *refusals
}

func newBusClient(n *node, to bus.Bus, owns bool, g *gate, l *backlog, f *figures, r *refusals) *busClient {
	b := &busClient{node: n, bus: to, owns: owns, gate: g, backlog: l, figures: f, refusals: r}
	b.local, _ = to.(bus.Local)
	return b
}

// Bus returns the bus. A door that subscribes to it, or serves questions, ends that by OnClose: the
// bus may go on when the hub has ended.
func (b *busClient) Bus() bus.Bus { return b.bus }

// OnClose has f called once by Shutdown, when the sessions have ended or Shutdown's context has,
// and before the bus is closed. A door calls it from Open.
func (b *busClient) OnClose(f func()) { b.atClose = append(b.atClose, f) }

// close gives back what the hub and its doors have of the bus, and closes it if it is the hub's
// own.
func (b *busClient) close() error {
	for _, f := range b.atClose {
		f()
	}
	if !b.owns {
		return nil
	}
	return b.bus.Close()
}

// LocalBus returns the bus if it is one within this process, else nil.
func (b *busClient) LocalBus() bus.Local { return b.local }

// busPatience is how long a method of the bus may wait for other nodes. An election among them
// takes up to 9 s.
const busPatience = 15 * time.Second

// BusDeadline returns ctx with the end of how long a method of the bus may wait for other nodes. A
// bus within this process does not wait, and needs none.
func (b *busClient) BusDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if b.local != nil {
		return ctx, func() {}
	}
	return b.Within(ctx, busPatience)
}

// Topic returns the channel with the retention of its rules.
func (b *busClient) Topic(channel string) bus.Topic {
	return bus.Topic{Name: channel, Keep: b.rules.Of(channel).Retention()}
}

// Publish returns these for an invalid publication. A client is answered "bad request".
var (
	ErrBadVersion = fmt.Errorf("push: the epoch of the version has more than %d bytes: %w", MaxID, answer.ErrBadRequest)
	ErrBadID      = fmt.Errorf("push: the ID has more than %d bytes: %w", MaxID, answer.ErrBadRequest)
	ErrBadData    = fmt.Errorf("push: the data is too large, or not one JSON value in UTF-8: %w",
		answer.ErrBadRequest)
)

// MaxID bounds Publication.ID, in bytes.
const MaxID = 256

// Publish sends p to all subscribers of the channel. When it returns nil, p is queued, and Shutdown
// sends it before it ends the connections. If the caller is at fault, the error is an Error. It is
// ErrDraining while the server shuts down, and ErrOverloaded while what was published before cannot
// be delivered. Nothing is published then, and the caller may try again later.
//
// p.Data may be any JSON text in UTF-8 (RFC 8259 §8.1). Publish checks the UTF-8 itself, because
// encoding/json does not. Data goes into text frames unchanged, and text that is not UTF-8 would
// make every subscriber fail its connection (RFC 6455 §8.1).
//
// With skipHistory the publication is not in the channel's history and cannot be recovered. exact
// says that the data came as bytes: JSON in them keeps its spaces.
func (b *busClient) Publish(ctx context.Context, channel string, p bus.Publication, skipHistory, exact bool) (
	bus.Position, error) {
	keep := b.rules.Of(channel).Retention()
	if skipHistory {
		keep = bus.Retention{}
	}
	return b.publishWith(ctx, channel, p, keep, exact)
}

// publishWith is Publish with a Retention instead of the channel's own.
func (b *busClient) publishWith(ctx context.Context, channel string, p bus.Publication, keep bus.Retention,
	exact bool) (
	bus.Position, error) {
	if err := b.rules.Check(channel); err != nil {
		return bus.Position{}, err
	}
	if len(p.ID) > MaxID {
		return bus.Position{}, ErrBadID
	}
	if p.Version != nil && len(p.Version.Epoch) > MaxID {
		return bus.Position{}, ErrBadVersion
	}
	var ok bool
	if p.Data, ok = checked(&p, exact); !ok || p.Size() > b.limits.Publication {
		return bus.Position{}, ErrBadData
	}
	return b.publishTopic(ctx, bus.Topic{Name: channel, Keep: keep}, p)
}

// PublishExact is Publish for data of that kind. JSON is sent as it is, spaces between its tokens
// included. It returns an Error for an invalid channel or invalid data.
func (b *busClient) PublishExact(ctx context.Context, channel string, data []byte, kind bus.Kind) error {
	_, err := b.Publish(ctx, channel, bus.Publication{Data: data, Kind: kind}, false, true)
	return err
}

// MayPublish returns the error that Publish would return now whatever is published: ErrDraining or
// ErrOverloaded. It is for calls that publish several times.
func (b *busClient) MayPublish() error {
	if b.gate.IsDraining() {
		b.refusals.count(RefusedDraining)
		return answer.ErrDraining
	}
	err := b.backlog.admit()
	if err != nil {
		b.refusals.count(RefusedOverload)
	}
	return err
}

// PublishLog publishes p, whose data are as its kind says, to a log of the door, which is no
// channel: its name begins with a zero byte. It returns an Error for a publication above the
// limit, and ErrDraining or ErrOverloaded as Publish does.
func (b *busClient) PublishLog(ctx context.Context, log bus.Topic, p bus.Publication) (bus.Position, error) {
	if p.Size() > b.limits.Publication {
		return bus.Position{}, ErrBadData
	}
	return b.publishTopic(ctx, log, p)
}

// publishTopic passes p to the bus, unless the node takes no publications.
func (b *busClient) publishTopic(ctx context.Context, t bus.Topic, p bus.Publication) (bus.Position, error) {
	if err := b.gate.enter(ctx); err != nil {
		if err == answer.ErrDraining {
			b.refusals.count(RefusedDraining)
		}
		return bus.Position{}, err
	}
	defer b.gate.leave()
	if err := b.backlog.admit(); err != nil {
		b.refusals.count(RefusedOverload)
		return bus.Position{}, err
	}
	began := b.clock.Now()
	ctx, cancel := b.BusDeadline(ctx)
	defer cancel()
	at, err := b.bus.Publish(ctx, t, p)
	if err != nil {
		return at, err
	}
	b.figures.latency.observe(b.clock.Now().Sub(began))
	b.figures.publishes.Add(1)
	return at, nil
}

// checked returns p.Data as a Bus carries it. It is not ok if it is not of p.Kind. JSON allows
// newlines between tokens, but a newline ends a command of the protocol and a field of an event.
func checked(p *bus.Publication, exact bool) (data []byte, ok bool) {
	if p.Kind != bus.Binary && !utf8.Valid(p.Data) {
		return nil, false
	}
	if p.Kind != bus.JSON {
		return p.Data, true
	}
	if exact && !bytes.ContainsAny(p.Data, "\r\n") {
		return bytes.Clone(p.Data), json.Valid(p.Data)
	}
	data, err := CompactJSON(p.Data)
	return data, err == nil
}

// CompactJSON returns JSON without spaces and newlines between its tokens.
func CompactJSON(text []byte) ([]byte, error) {
	var compact bytes.Buffer
	compact.Grow(len(text))
	err := json.Compact(&compact, text)
	return compact.Bytes(), err
}

// History reads as much as Limits allow. A position of another epoch is an error for the client.
func (b *busClient) History(ctx context.Context, name string, q bus.Query) (bus.History, error) {
	if q.Limit < 0 || q.Limit > b.limits.Recovered {
		q.Limit = b.limits.Recovered
	}
	past, err := b.readHistory(ctx, name, q)
	if err != nil {
		return past, err
	}
	if q.Since != nil && q.Since.Epoch != "" && q.Since.Epoch != past.Top.Epoch {
		return past, answer.ErrUnrecoverable
	}
	bytes := 0
	for i, p := range past.Publications {
		bytes += envelope + p.Size()
		if bytes > b.limits.Queue && i > 0 {
			past.Publications = past.Publications[:i]
			break
		}
	}
	return past, nil
}

// readHistory reads a channel's history, without any limits.
func (b *busClient) readHistory(ctx context.Context, name string, q bus.Query) (bus.History, error) {
	ctx, cancel := b.BusDeadline(ctx)
	defer cancel()
	return b.bus.History(ctx, b.Topic(name), q)
}

// Presence returns the clients of a channel on all nodes, or their numbers only. More clients than
// Limits.Present are an error for the client.
func (b *busClient) Presence(ctx context.Context, name string, numbers bool) (bus.Presence, error) {
	limit := b.limits.Present
	if numbers {
		limit = 0
	}
	ctx, cancel := b.BusDeadline(ctx)
	defer cancel()
	there, err := b.bus.Present(ctx, name, limit)
	if err == nil && !numbers && there.Count > limit {
		err = answer.ErrLimitExceeded
	}
	if len(there.Missing) > 0 {
		b.log.Warn("push: nodes did not answer who is present", "channel", name, "nodes", there.Missing)
	}
	return there, err
}

// subscribe makes r receive the events of t.
func (b *busClient) subscribe(t bus.Topic, r bus.Receiver) error {
	ctx, cancel := b.BusDeadline(context.Background())
	defer cancel()
	return b.bus.Subscribe(ctx, t, r)
}

func (b *busClient) unsubscribe(channel string, r bus.Receiver) { b.bus.Unsubscribe(channel, r) }

// announce sends a notice that a client has joined or left the channel. It does not retry.
func (b *busClient) announce(channel string, n bus.Notice) {
	ctx, cancel := b.BusDeadline(context.Background())
	defer cancel()
	if err := b.bus.Announce(ctx, channel, n); err != nil && !b.gate.IsDraining() {
		b.log.Warn("push: the bus refused a join or leave notice", "channel", channel, "joined", n.Joined, "error", err)
	}
}
