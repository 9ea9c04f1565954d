package natsbus

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/internal/receipts"
	"github.com/nats-io/nats.go"
)

// A publisher stores what this node publishes: publications in the log of their channel, and the
// tombstones of Bus.Forget. It hands publications that no log keeps to passing.
type publisher struct {
	*jetStream
	logs     *logs
	passing  *passing
	receipts *receipts.Table[bus.Position] // for publications with an ID

	unique    string // begins the IDs of messages
	published atomic.Uint64
}

func newPublisher(j *jetStream, l *logs, p *passing, r *receipts.Table[bus.Position]) *publisher {
	return &publisher{jetStream: j, logs: l, passing: p, receipts: r, unique: randomText()}
}

// headRoom is more than the bytes of the headers of a message.
const headRoom = 512

// publish publishes p, once for each ID: see bus.Bus.
func (u *publisher) publish(ctx context.Context, t bus.Topic, p bus.Publication) (bus.Position, error) {
	token, err := tokenOf(t.Name)
	if err != nil {
		return bus.Position{}, err
	}
	if p.Version != nil && t.Keep.Size <= 0 {
		return bus.Position{}, bus.ErrNoHistory
	}
	data := appendPublication(make([]byte, 0, len(p.Data)+len(p.Client)+len(p.User)+64), &p)
	if most := u.nc.MaxPayload(); int64(len(data)+headRoom) > most {
		return bus.Position{}, fmt.Errorf("natsbus: the publication has %d bytes, and NATS takes at most %d: "+
			"raise its max_payload", len(data), most)
	}
	publish := func() (bus.Position, error) {
		if t.Keep.Size > 0 {
			return u.publishKept(ctx, t, token, &p, data)
		}
		return bus.Position{}, u.passing.publish(ctx, t.Name, token, p, data)
	}
	if p.ID == "" {
		return publish()
	}
	return u.receipts.Once(ctx, t.Name, p.ID, time.Now, publish)
}

// resendAfter is how long a publication may be without an answer before it is sent again. The log
// stores it once, because both have the same ID.
const resendAfter = time.Second

// resendElected is the same for a publication that a log's former leader may have taken with it: a
// new leader has been elected meanwhile. It may not have begun to listen.
const resendElected = 20 * time.Millisecond

// publishKept publishes through the log, and returns when this node has received it from there. The
// log's acknowledgement alone would not do: for a publication that it has already it does not say
// that it was delivered.
func (u *publisher) publishKept(ctx context.Context, t bus.Topic, token string, p *bus.Publication, data []byte) (
	bus.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, publishTime)
	defer cancel()
	f, err := u.logs.live(ctx, t)
	if err != nil {
		return bus.Position{}, err
	}
	key := u.messageID(t.Name, p.ID)
	waiter, forget := f.delivery.expect(key)
	defer forget()
	uncertain, patience := false, resendAfter
	for {
		elected := f.delivery.leaderElected()
		reply, g, drop := u.expect(firstOnly)
		m := &nats.Msg{Subject: f.stored + token, Reply: reply, Data: data, Header: nats.Header{"Nats-Msg-Id": {key}}}
		var err error
		if p.Version != nil {
			var last bus.Position
			if last, err = u.follows(ctx, f, t.Name, token, *p.Version, m); errors.Is(err, bus.ErrOutdated) {
				drop()
				return last, err
			}
		}
		if err == nil {
			err = u.kept.PublishMsg(m)
		}
		if err == nil {
			at, result := awaitStored(ctx, f, t.Name, waiter, g, elected, patience)
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
		case <-u.closing:
			return bus.Position{}, errors.Join(bus.ErrUncertain, bus.ErrClosed)
		case at := <-waiter.position:
			return at, nil
		case <-time.After(retryAfter(err)):
		}
		patience = resendAfter
		select {
		case <-elected:
			patience = resendElected
		default:
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
func (u *publisher) messageID(channel, id string) string {
	if id == "" {
		return u.unique + strconv.FormatUint(u.published.Add(1), 36)
	}
	sum := sha256.Sum256([]byte(channel + "\x00" + id))
	return base64.RawURLEncoding.EncodeToString(sum[:18])
}

// follows makes the log store a message only behind the channel's last one, if version may follow
// that: the log compares. Else it returns the position of the last one and bus.ErrOutdated.
func (u *publisher) follows(ctx context.Context, f *follower, channel, token string, version bus.Version,
	m *nats.Msg) (bus.Position, error) {
	s, found, err := u.leaderGet(ctx, f.stream, directGet{Last: f.stored + token})
	if err != nil {
		return bus.Position{}, err
	}
	if found && s.id == m.Header.Get("Nats-Msg-Id") { // it was sent before: the log knows that, and says where it is
		return bus.Position{}, nil
	}
	if found && !version.After(versionIn(s.data)) {
		if err := f.progress.waitFor(ctx, s.seq); err != nil {
			return bus.Position{}, err
		}
		return bus.Position{Offset: s.seq, Epoch: channelEpoch(f.progress.epochNow(), channel)}, bus.ErrOutdated
	}
	m.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatUint(s.seq, 10))
	return bus.Position{}, nil
}

// versionIn returns the version of the publication in a message, or the zero Version.
func versionIn(data []byte) (v bus.Version) {
	r := reader{rest: data}
	if form(r.byte()) != formPublication {
		return v
	}
	if p := r.publication(); !r.wrong && p.Version != nil {
		v = *p.Version
	}
	return v
}

// errUnanswered says that a message may have been stored.
var errUnanswered = errors.New("natsbus: the log does not answer")

func isUnknown(err error) bool { return errors.Is(err, errUnanswered) }

// awaitStored waits until the message has been delivered, or for an answer that says that it will
// not be, or as long as patience lasts. That ends sooner when a leader is elected.
func awaitStored(ctx context.Context, f *follower, channel string, w *pendingPublish, g *gather,
	elected <-chan struct{}, patience time.Duration) (bus.Position, error) {
	timer := time.NewTimer(patience)
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
				if err := f.progress.waitFor(ctx, seq); err != nil {
					return bus.Position{}, errors.Join(errUnanswered, err)
				}
				return bus.Position{Offset: seq, Epoch: channelEpoch(f.progress.epochNow(), channel)}, nil
			}
		case <-elected:
			elected = nil
			timer.Reset(resendElected)
		case <-timer.C:
			return bus.Position{}, errUnanswered
		case <-ctx.Done():
			return bus.Position{}, errUnanswered
		}
	}
}

// mayRetry reports whether the cause of err may pass: an election, a restart, a full disk, or a
// publication of another node between two that are compared.
func mayRetry(err error) bool {
	var e *apiError
	return isUnknown(err) || errors.Is(err, errNoAnswer) || isCode(err, codeWrongLast, codeWrongLastOnly) ||
		errors.As(err, &e) && (e.Code == 503 || e.Code == 500)
}

// forget stores a tombstone that replaces what the channel has. A purge would hide from the other
// nodes that something is missing.
func (u *publisher) forget(ctx context.Context, t bus.Topic) error {
	if t.Keep.Size <= 0 {
		return bus.ErrNoHistory
	}
	token, err := tokenOf(t.Name)
	if err != nil {
		return err
	}
	f, err := u.logs.live(ctx, t)
	if err != nil {
		return err
	}
	for {
		reply, g, drop := u.expect(firstOnly)
		err := u.kept.PublishMsg(&nats.Msg{Subject: f.stored + token, Reply: reply, Data: []byte{byte(formForgotten)},
			Header: nats.Header{"Nats-Rollup": {"sub"}}})
		if err != nil {
			drop()
			return err
		}
		var seq uint64
		select {
		case <-g.done:
			seq, _, err = acknowledged(g.msgs[0])
		case <-time.After(resendAfter):
			err = errUnanswered
		case <-ctx.Done():
			err = ctx.Err()
		case <-u.closing:
			err = bus.ErrClosed
		}
		drop()
		if err == nil {
			return f.progress.waitFor(ctx, seq)
		}
		if !mayRetry(err) || ctx.Err() != nil {
			return err
		}
	}
}
