package natsbus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/nats-io/nats.go"
)

// A follower receives one log as a whole, in the order of its sequence numbers, and delivers it to
// this node's receivers.
//
// The log publishes again what it has stored. That may come twice, when its leader changes, or not
// at all, when its leader hangs. So the follower drops what it has, and reads what is missing from
// the nearest replica. Every second it reads whether there is more, because the end of a log may be
// missing too. A replica may be behind without knowing it: now and then the follower asks the
// leader.
type follower struct {
	b        *Bus
	id       logID
	stream   string
	stored   string // what the log stores has subjects that begin with it
	received string // of what it publishes again

	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup

	// work is held while messages are handled, also while missing ones are read.
	work  sync.Mutex
	held  *sync.Cond // of work: the state is no longer probed
	state followState
	probe string        // the subject of the message that shows that the follower is listening
	heard chan struct{} // closed when that has come
	sub   *nats.Subscription

	behind int // looks in a row that found the leader ahead, or behind
	ahead  int

	mu      sync.Mutex
	live    chan struct{} // closed while the follower is live
	problem string        // why it is not; empty if it is
	last    uint64        // everything up to it has been delivered
	lastAt  int64         // the time of that message
	epoch   string        // of the log
	epochAt uint64        // sequence number of the message that says so
	markAt  int64         // time of the last mark
	tail    tail          // what was delivered lately
	replica uint64        // a replica that answers direct gets has everything up to it
	info    streamInfo    // as it was last seen
	moved   chan struct{} // closed and replaced when last changes, if waiting > 0
	waiting int
	pending map[string]*pendingPublish

	floors floors
	reads  chan struct{} // has a place for each of maxReads readers
	seal   seal
}

type followState uint8

const (
	followStarting followState = iota // listening for the probe
	followProbed                      // it has been heard; what comes next waits until the epoch is known
	followLive
	followStopped
)

func (b *Bus) newFollower(id logID) *follower {
	f := &follower{b: b, id: id, stream: id.stream(b.prefix), stored: id.subjects(b.prefix, "h"),
		received: id.subjects(b.prefix, "p"), live: make(chan struct{}), moved: make(chan struct{}),
		reads: make(chan struct{}, maxReads), pending: make(map[string]*pendingPublish), problem: "it starts"}
	f.held = sync.NewCond(&f.work)
	f.ctx, f.stop = context.WithCancel(context.Background())
	f.seal.open(b.config.Dir, f.stream)
	f.done.Go(f.run)
	return f
}

func (f *follower) close() {
	f.stop()
	f.work.Lock()
	f.state = followStopped
	f.held.Broadcast()
	f.work.Unlock()
	f.done.Wait()
	f.seal.close()
}

// These are the times between two looks.
const (
	lookAtReplica = time.Second
	lookAtLeader  = 3 * time.Second
	tryAgain      = 250 * time.Millisecond
)

// run makes the follower live, and looks for what it has missed until it is stopped.
func (f *follower) run() {
	renew := false
	for f.ctx.Err() == nil {
		if err := f.begin(renew); err != nil {
			f.setProblem(err.Error())
			f.pause(tryAgain)
			continue
		}
		renew = false
		tick := 0
		for f.pause(lookAtReplica) {
			if !f.isLive() { // a rollback was noticed
				renew = true
				break
			}
			if tick++; tick%int(lookAtLeader/lookAtReplica) == 0 {
				f.lookAtLeader()
			}
			f.lookAtReplica()
			f.keepMarks()
		}
	}
	f.work.Lock()
	defer f.work.Unlock()
	f.unsubscribe()
}

func (f *follower) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-f.ctx.Done():
		return false
	}
}

func (f *follower) setProblem(why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.problem == why || f.ctx.Err() != nil:
	case why != "":
		f.b.log.Warn("natsbus: a log is not followed", "log", f.stream, "problem", why)
	default:
		f.b.log.Info("natsbus: a log is followed", "log", f.stream)
	}
	f.problem = why
}

func (f *follower) isLive() bool {
	f.work.Lock()
	defer f.work.Unlock()
	return f.state == followLive
}

func (f *follower) unsubscribe() {
	if f.sub != nil {
		_ = f.sub.Unsubscribe() // it fails only if the connection is closed
		f.sub = nil
	}
}

// begin creates the log if necessary, listens to it, and waits until it hears a message of its own:
// a subscription that the server has accepted may not have reached the log's leader yet.
func (f *follower) begin(renew bool) error {
	if err := f.b.ensure(f.ctx, f.id); err != nil {
		return err
	}
	if err := f.listen(); err != nil {
		return err
	}
	deadline := time.Now().Add(10 * time.Second)
	for heard := false; !heard; {
		if time.Now().After(deadline) {
			return errors.New("the log does not publish what it stores")
		}
		if err := f.b.nc.Publish(f.stored+f.probe, []byte{byte(formMark)}); err != nil {
			return err
		}
		timer := time.NewTimer(lookAtReplica)
		select {
		case <-f.heard:
			heard = true
		case <-timer.C:
		case <-f.ctx.Done():
			return f.ctx.Err()
		}
		timer.Stop()
	}
	if err := f.agreeOnEpoch(renew); err != nil {
		return err
	}
	f.setProblem("")
	f.work.Lock()
	defer f.work.Unlock()
	if f.state != followProbed {
		return errors.New("it was stopped")
	}
	f.state = followLive
	f.held.Broadcast()
	f.mu.Lock()
	close(f.live)
	f.mu.Unlock()
	return nil
}

// listen subscribes anew.
func (f *follower) listen() error {
	f.work.Lock()
	defer f.work.Unlock()
	if f.state == followStopped {
		return errors.New("it was stopped")
	}
	f.unsubscribe()
	f.state = followStarting
	f.held.Broadcast()
	f.probe = "$m." + nats.NewInbox()[len(nats.InboxPrefix):]
	heard := make(chan struct{})
	f.heard = heard
	var err error
	f.sub, err = f.b.nc.Subscribe(f.received+">", func(m *nats.Msg) { f.receive(m, heard) })
	if err == nil {
		err = f.sub.SetPendingLimits(pendingMessages, pendingBytes)
	}
	return err
}

// These bound what waits between the connection and the follower. Above them the client library
// drops messages; then the follower reads them from the log.
const (
	pendingMessages = 64 << 10
	pendingBytes    = 64 << 20
)

// receive handles a message that the log has published. heard names the subscription.
func (f *follower) receive(m *nats.Msg, heard chan struct{}) {
	s, err := storedOf(m)
	if err != nil || !strings.HasPrefix(s.subject, f.stored) {
		return
	}
	f.work.Lock()
	defer f.work.Unlock()
	if f.state == followStarting && f.heard == heard && s.subject == f.stored+f.probe {
		f.state = followProbed
		f.mu.Lock()
		f.last, f.lastAt, f.replica = s.seq, s.at, 0
		f.tail.reset(s.seq)
		f.mu.Unlock()
		close(heard)
		return
	}
	for f.state == followProbed && f.heard == heard {
		f.held.Wait()
	}
	if f.state != followLive || f.heard != heard {
		return
	}
	switch last, at := f.position(); {
	case s.seq <= last && s.at > at:
		f.rollback(fmt.Sprintf("message %d was stored again, after %d", s.seq, last))
	case s.seq <= last: // it came twice
	case s.seq > last+1:
		f.fill(s.seq - 1)
		if last, _ = f.position(); s.seq == last+1 {
			f.deliver(s)
		}
	default:
		f.deliver(s)
	}
}

func (f *follower) position() (last uint64, at int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.lastAt
}

// rollback begins again, in a new epoch: the log has lost its end and uses sequence numbers again.
// The caller holds work.
func (f *follower) rollback(why string) {
	if f.state != followLive {
		return
	}
	f.b.log.Error("natsbus: a log has lost its end; its channels begin a new epoch", "log", f.stream, "because", why)
	f.state = followStarting
	f.heard = nil
	f.mu.Lock()
	f.live = make(chan struct{})
	f.problem = "it begins a new epoch"
	f.mu.Unlock()
}

// deliver hands the next message to its receivers. The caller holds work.
func (f *follower) deliver(s stored) {
	advance := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if s.seq != f.last+1 {
			f.tail.reset(s.seq - 1)
		}
		f.tail.add(s)
		f.last, f.lastAt = s.seq, s.at
		if f.waiting > 0 {
			close(f.moved)
			f.moved, f.waiting = make(chan struct{}), 0
		}
	}
	token := strings.TrimPrefix(s.subject, f.stored)
	r := reader{rest: s.data}
	name, isChannel := channelOf(token)
	switch kind := form(r.byte()); {
	case !isChannel && kind == formEpoch:
		if epoch := r.text(); epoch != "" {
			f.hearEpoch(epoch, s.seq, advance)
		} else {
			advance()
		}
	case !isChannel:
		if kind == formMark && !strings.HasPrefix(token, f.probe) {
			f.hearMark(s.at)
		}
		advance()
	case kind == formPublication:
		p := r.publication()
		p.Version = nil
		p.Position = bus.Position{Offset: s.seq, Epoch: channelEpoch(f.epochNow(), name)}
		if r.wrong {
			f.skip(s, name, advance)
			break
		}
		f.b.registry.receive(name, p, advance)
	case kind == formForgotten:
		advance()
	default:
		f.skip(s, name, advance)
	}
	f.seal.write(f.epochNow(), s.seq, s.at)
	if s.id != "" {
		f.settle(s.id, s.seq, name)
	}
}

// skip passes over a message of a channel that this node does not understand, such as one of a
// later version. Its receivers have missed something. The caller holds work.
func (f *follower) skip(s stored, channel string, advance func()) {
	advance()
	f.b.log.Warn("natsbus: a message of a log is not understood: do all nodes have the same version?", "log", f.stream,
		"seq", s.seq, "channel", channel)
	f.b.registry.tell(channel, func(r bus.Receiver) { r.Lost(channel) })
}

func (f *follower) epochNow() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.epoch
}

// hearEpoch handles a message that begins or confirms an epoch. The caller holds work.
func (f *follower) hearEpoch(epoch string, seq uint64, advance func()) {
	f.mu.Lock()
	changed := f.epoch != epoch
	f.epoch, f.epochAt = epoch, seq
	f.mu.Unlock()
	advance()
	if changed {
		f.loseAll()
	}
}

// loseAll tells all receivers of this log's channels that they have missed something. The caller
// holds work.
func (f *follower) loseAll() {
	epoch := f.epochNow()
	f.b.registry.each(func(t *topic) {
		if t.log == f {
			t.lost(channelEpoch(epoch, t.name))
		}
	})
}

// waitFor returns when the follower is live and has delivered everything up to seq.
func (f *follower) waitFor(ctx context.Context, seq uint64) error { return f.waitUnless(ctx, seq, nil) }

// errOther says that what was waited for besides has come first.
var errOther = errors.New("natsbus: something else has come first")

// waitUnless is waitFor until other is closed; then it returns errOther.
func (f *follower) waitUnless(ctx context.Context, seq uint64, other <-chan struct{}) error {
	for {
		f.mu.Lock()
		isLive, wait := true, f.moved
		select {
		case <-f.live:
		default:
			isLive, wait = false, f.live
		}
		if isLive && f.last >= seq {
			f.mu.Unlock()
			return nil
		}
		f.waiting++
		f.mu.Unlock()
		select {
		case <-wait:
		case <-other:
			return errOther
		case <-ctx.Done():
			return f.late(ctx)
		case <-f.b.closing:
			return bus.ErrClosed
		}
	}
}

func (f *follower) late(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem != "" {
		return fmt.Errorf("natsbus: the log %s is not followed: %s: %w", f.stream, f.problem, ctx.Err())
	}
	return fmt.Errorf("natsbus: the log %s is not followed that far: %w", f.stream, ctx.Err())
}
