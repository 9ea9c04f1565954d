package natsbus

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/nats-io/nats.go"
)

// Publish implements bus.Bus.
func (b *Bus) Publish(ctx context.Context, t bus.Topic, p bus.Publication) (bus.Position, error) {
	if err := b.usable(ctx); err != nil {
		return bus.Position{}, err
	}
	token, err := tokenOf(t.Name)
	if err != nil {
		return bus.Position{}, err
	}
	if p.Version != nil && t.Keep.Size <= 0 {
		return bus.Position{}, bus.ErrNoHistory
	}
	data := appendPublication(make([]byte, 0, len(p.Data)+len(p.Client)+len(p.User)+64), &p)
	if most := b.nc.MaxPayload(); int64(len(data)+headRoom) > most {
		return bus.Position{}, fmt.Errorf("natsbus: the publication has %d bytes, and NATS takes at most %d: "+
			"raise its max_payload", len(data), most)
	}
	publish := func() (bus.Position, error) {
		if t.Keep.Size > 0 {
			return b.publishKept(ctx, t, token, &p, data)
		}
		return bus.Position{}, b.publishPassing(t.Name, token, p, data)
	}
	if p.ID == "" {
		return publish()
	}
	return b.receipts.Once(ctx, t.Name, p.ID, time.Now, publish)
}

// headRoom is more than the bytes of the headers of a message.
const headRoom = 512

// publishPassing publishes what no log keeps. The order lock gives it one order on this node.
func (b *Bus) publishPassing(name, token string, p bus.Publication, data []byte) error {
	p.ID, p.Position = "", bus.Position{}
	send := func() error {
		if !b.nc.IsConnected() {
			return errNotConnected
		}
		return b.nc.Publish(b.prefix+".t."+token, data)
	}
	t, err := b.registry.find(name, false)
	if err != nil {
		return err
	}
	if t == nil {
		return send()
	}
	t.order.Lock()
	defer t.order.Unlock()
	if err := send(); err != nil {
		return err
	}
	t.one[0] = p
	for _, r := range t.receivers {
		r.Receive(name, t.one[:])
	}
	t.one[0] = bus.Publication{}
	return nil
}

var errNotConnected = errors.New("natsbus: the connection to NATS is down")

// A pendingPublish is a publication that this node waits to receive.
type pendingPublish struct {
	position chan bus.Position // has room for one
}

// resendAfter is how long a publication may be without an answer before it is sent again. The log
// stores it once, because both have the same ID.
const resendAfter = time.Second

// publishKept publishes through the log, and returns when this node has received it from there. The
// log's acknowledgement alone would not do: for a publication that it has already it does not say
// that it was delivered.
func (b *Bus) publishKept(ctx context.Context, t bus.Topic, token string, p *bus.Publication, data []byte) (
	bus.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, publishTime)
	defer cancel()
	f, err := b.live(ctx, t)
	if err != nil {
		return bus.Position{}, err
	}
	key := b.messageID(t.Name, p.ID)
	waiter, forget := f.expect(key)
	defer forget()
	uncertain := false
	for {
		reply, g, drop := b.inbox.expect(firstOnly)
		m := &nats.Msg{Subject: f.stored + token, Reply: reply, Data: data, Header: nats.Header{"Nats-Msg-Id": {key}}}
		var err error
		if p.Version != nil {
			var last bus.Position
			if last, err = f.follows(ctx, t.Name, token, *p.Version, m); errors.Is(err, bus.ErrOutdated) {
				drop()
				return last, err
			}
		}
		if err == nil {
			err = b.kept.PublishMsg(m)
		}
		if err == nil {
			at, result := f.awaitStored(ctx, t.Name, waiter, g)
			drop()
			if result == nil {
				return at, nil
			}
			err = result
		}
		drop()
		uncertain = uncertain || isUnknown(err)
		if !mayRetry(err) {
			return bus.Position{}, err
		}
		select {
		case <-ctx.Done():
			if uncertain {
				return bus.Position{}, errors.Join(bus.ErrUncertain, ctx.Err())
			}
			return bus.Position{}, errors.Join(err, ctx.Err())
		case <-b.closing:
			return bus.Position{}, errors.Join(bus.ErrUncertain, bus.ErrClosed)
		case at := <-waiter.position:
			return at, nil
		case <-time.After(retryAfter(err)):
		}
	}
}

// retryAfter spreads retries while a log elects a leader; what has waited for an answer waits no
// more.
func retryAfter(err error) time.Duration {
	if isUnknown(err) || isCode(err, codeWrongLast, codeWrongLastOnly) {
		return 0
	}
	return 100 * time.Millisecond
}

// messageID returns what the log knows a message by. It depends on the channel, because a log has
// many.
func (b *Bus) messageID(channel, id string) string {
	if id == "" {
		return b.unique + strconv.FormatUint(b.published.Add(1), 36)
	}
	sum := sha256.Sum256([]byte(channel + "\x00" + id))
	return base64.RawURLEncoding.EncodeToString(sum[:18])
}

// expect makes settle report the message with that ID.
func (f *follower) expect(id string) (*pendingPublish, func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.pending[id]
	if w != nil { // the same ID twice at once, without the table of receipts between them
		w = &pendingPublish{position: w.position}
		return w, func() {}
	}
	w = &pendingPublish{position: make(chan bus.Position, 1)}
	f.pending[id] = w
	return w, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.pending, id)
	}
}

// settle reports that the message with that ID has been delivered.
func (f *follower) settle(id string, seq uint64, channel string) {
	f.mu.Lock()
	w := f.pending[id]
	at := bus.Position{Offset: seq, Epoch: channelEpoch(f.epoch, channel)}
	f.mu.Unlock()
	if w != nil {
		select {
		case w.position <- at:
		default:
		}
	}
}

// errUnanswered says that a message may have been stored.
var errUnanswered = errors.New("natsbus: the log does not answer")

func isUnknown(err error) bool { return errors.Is(err, errUnanswered) }

// awaitStored waits until the message has been delivered, or for an answer that says that it will
// not be, or for resendAfter.
func (f *follower) awaitStored(ctx context.Context, channel string, w *pendingPublish, g *gather) (bus.Position,
	error) {
	timer := time.NewTimer(resendAfter)
	defer timer.Stop()
	answered := g.done
	for {
		select {
		case at := <-w.position:
			return at, nil
		case <-answered:
			answered = nil
			seq, duplicate, err := acknowledged(g.msgs[0])
			if isCode(err, codeInProcess) { // an earlier message with this ID may still be stored
				continue
			}
			if err != nil {
				return bus.Position{}, err
			}
			if duplicate { // it was delivered before this call waited for it
				if err := f.waitFor(ctx, seq); err != nil {
					return bus.Position{}, errors.Join(errUnanswered, err)
				}
				return bus.Position{Offset: seq, Epoch: channelEpoch(f.epochNow(), channel)}, nil
			}
		case <-timer.C:
			return bus.Position{}, errUnanswered
		case <-ctx.Done():
			return bus.Position{}, errUnanswered
		}
	}
}

// acknowledged reads the log's answer to a message, which names the log and the message's number.
func acknowledged(m *nats.Msg) (seq uint64, duplicate bool, err error) {
	var ack struct {
		Stream    string `json:"stream"`
		Seq       uint64 `json:"seq"`
		Duplicate bool   `json:"duplicate"`
	}
	if err = decodeAny(m, &ack); err == nil && (ack.Stream == "" || ack.Seq == 0) {
		err = errNotUnderstood
	}
	return ack.Seq, ack.Duplicate, err
}

// mayRetry reports whether the cause of err may pass: an election, a restart, a full disk, or a
// publication of another node between two that are compared.
func mayRetry(err error) bool {
	var e *apiError
	return isUnknown(err) || errors.Is(err, errNoAnswer) || isCode(err, codeWrongLast, codeWrongLastOnly) ||
		errors.As(err, &e) && (e.Code == 503 || e.Code == 500)
}

// receivePassing handles what other nodes have published without a history, and their notices.
func (b *Bus) receivePassing(m *nats.Msg) {
	name, ok := channelOf(m.Subject[len(b.prefix)+len(".t."):])
	if !ok {
		return
	}
	r := reader{rest: m.Data}
	switch form(r.byte()) {
	case formPublication:
		if p := r.publication(); !r.wrong {
			b.registry.receive(name, p, func() {})
		}
	case formNotice:
		if n := r.notice(); !r.wrong {
			b.registry.tell(name, func(r bus.Receiver) { r.Notice(name, n) })
		}
	}
}

// Announce implements bus.Bus.
func (b *Bus) Announce(ctx context.Context, channel string, n bus.Notice) error {
	if err := b.usable(ctx); err != nil {
		return err
	}
	token, err := tokenOf(channel)
	if err != nil {
		return err
	}
	b.registry.tell(channel, func(r bus.Receiver) { r.Notice(channel, n) })
	return b.nc.Publish(b.prefix+".t."+token, appendNotice(nil, &n))
}
