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
	*logName
	*streams
	progress *progress
	epochs   *epochKeeper
	delivery *delivery
	history  *historyReader

	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup

	work sync.Mutex // held while messages are handled, also while missing ones are read
	listening
	looks looks
}

// listening is what work guards: what the follower does with what its subscription brings.
type listening struct {
	held  *sync.Cond // of work: the state is no longer probed
	state followState
	heard chan struct{} // names the subscription; closed when that has brought the probe
	probe stored        // the probe that was heard
	sub   *nats.Subscription

	elections *nats.Subscription // to what JetStream says of the log's leaders
}

type followState uint8

const (
	followStarting followState = iota // listening for the probe
	followProbed                      // it has been heard; what comes next waits until the epoch is known
	followLive
	followStopped
)

// looks are the looks in a row that found the log's leader away from the follower's position.
type looks struct {
	behind, ahead int
}

// newFollower returns what follows a log by run.
func newFollower(name *logName, s *streams, q *questions, r *registry) *follower {
	p := newProgress(name.stream, s.closing)
	f := &follower{logName: name, streams: s, progress: p}
	f.held = sync.NewCond(&f.work)
	f.ctx, f.stop = context.WithCancel(context.Background())
	f.epochs = newEpochKeeper(name, s.jetStream, q, p, s.config, s.maxAge(name.id))
	f.delivery = newDelivery(name, s.conn, r, p, f.epochs)
	f.history = newHistoryReader(f.ctx, name, s.jetStream, p, r, &f.done)
	return f
}

func (f *follower) close() {
	f.stop()
	f.work.Lock()
	f.state = followStopped
	f.held.Broadcast()
	f.work.Unlock()
	f.done.Wait()
	f.epochs.seal.close()
}

// These are the times between two looks.
const (
	lookAtReplica = time.Second
	lookAtLeader  = 3 * time.Second
)

// run makes the follower live, and looks for what it has missed until it is stopped.
func (f *follower) run() {
	live, renew := false, false
	if f.progress.hasPlace() {
		live, renew = f.goOn()
	}
	for f.ctx.Err() == nil {
		if !live {
			if err := f.begin(renew); err != nil {
				f.setProblem(err.Error())
				f.pause(tryAgain)
				continue
			}
		}
		live, renew = false, false
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
			f.epochs.keepMarks(f.ctx)
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
	switch changed := f.progress.setProblem(why); {
	case !changed || f.ctx.Err() != nil:
	case why != "":
		f.log.Warn("natsbus: a log is not followed", "log", f.stream, "problem", why)
	default:
		f.log.Info("natsbus: a log is followed", "log", f.stream)
	}
}

func (f *follower) isLive() bool {
	f.work.Lock()
	defer f.work.Unlock()
	return f.state == followLive
}

// begin creates the log if necessary, listens to it, and waits until it hears a message of its own:
// a subscription that the server has accepted may not have reached the log's leader yet.
func (f *follower) begin(renew bool) error {
	if err := f.ensure(f.ctx, f.id); err != nil {
		return err
	}
	heard, err := f.listen()
	if err != nil {
		return err
	}
	if err := f.hearProbe(heard); err != nil {
		return err
	}
	before := f.progress.epochNow()
	if err := f.epochs.agree(f.ctx, renew); err != nil {
		return err
	}
	if before != "" { // what came while the follower was not live is missing
		f.work.Lock()
		f.delivery.loseAll()
		f.work.Unlock()
	}
	f.setProblem("")
	f.work.Lock()
	defer f.work.Unlock()
	if f.state != followProbed {
		return errors.New("it was stopped")
	}
	f.state = followLive
	f.held.Broadcast()
	f.progress.goLive()
	return nil
}

// goOnAgain is how long a follower that goes on waits before it tries again.
const goOnAgain = 20 * time.Millisecond

// goOn makes the follower go on from its place. It reads what the log has stored since, and goes on
// with what its subscription brings. What was delivered before is not delivered again, and nothing
// between is missed. If the log is not the one that the place is of, it is to begin a new epoch.
func (f *follower) goOn() (live, renew bool) {
	for f.ctx.Err() == nil {
		why, err := f.tryGoOn()
		switch {
		case err != nil:
			f.setProblem("it goes on: " + err.Error())
			_ = f.ensure(f.ctx, f.id) // it may be gone; if this fails, the next turn sees it
			f.pause(goOnAgain)
		case why != "":
			f.log.Error("natsbus: a log has lost its end; its channels begin a new epoch", "log", f.stream, "because",
				why)
			f.progress.losePlace()
			return false, true
		default:
			return true, false
		}
	}
	return false, false
}

// tryGoOn returns why the log has lost its end, or "" when the follower is live.
func (f *follower) tryGoOn() (why string, err error) {
	heard, err := f.listen()
	if err != nil {
		return "", err
	}
	if err := f.hearProbe(heard); err != nil {
		return "", err
	}
	f.work.Lock()
	probe := f.probe
	f.work.Unlock()
	at := f.progress.place()
	if why, err = f.epochs.leaves(f.ctx, probe.seq, at); why != "" || err != nil {
		return why, err
	}
	f.work.Lock()
	defer f.work.Unlock()
	if f.state != followProbed {
		return "", errors.New("it was stopped")
	}
	f.state = followLive
	f.held.Broadcast()
	for { // what comes meanwhile waits for work
		f.fill(probe.seq)
		if last, _ := f.progress.position(); last >= probe.seq {
			break
		}
		if !f.pause(goOnAgain) {
			return "", f.ctx.Err()
		}
	}
	f.progress.goLive()
	f.setProblem("")
	return "", nil
}

// probeAgain is how soon a probe is sent again at first. While a node starts, its messages may not
// reach the log's leader yet.
const probeAgain = 5 * time.Millisecond

// hearProbe sends probes until the subscription brings one.
func (f *follower) hearProbe(heard <-chan struct{}) error {
	again := probeAgain
	for deadline := time.Now().Add(10 * time.Second); ; {
		if time.Now().After(deadline) {
			return errors.New("the log does not publish what it stores")
		}
		if err := f.nc.Publish(f.stored+f.delivery.probe, []byte{byte(formMark)}); err != nil {
			return err
		}
		timer := time.NewTimer(again)
		select {
		case <-heard:
			timer.Stop()
			return nil
		case <-timer.C:
			again = min(2*again, lookAtReplica)
		case <-f.ctx.Done():
			return f.ctx.Err()
		}
	}
}

// These bound what waits between the connection and the follower. Above them the client library
// drops messages; then the follower reads them from the log.
const (
	pendingMessages = 64 << 10
	pendingBytes    = 64 << 20
)

// electedSubject begins the subjects of what JetStream says when a log has another leader.
const electedSubject = "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED."

// listen subscribes anew. heard is closed when the subscription has brought the probe.
func (f *follower) listen() (heard chan struct{}, err error) {
	f.work.Lock()
	defer f.work.Unlock()
	if f.state == followStopped {
		return nil, errors.New("it was stopped")
	}
	f.unsubscribe()
	f.state = followStarting
	f.held.Broadcast()
	f.delivery.probe = "$m." + nats.NewInbox()[len(nats.InboxPrefix):]
	heard = make(chan struct{})
	f.heard = heard
	f.sub, err = f.nc.Subscribe(f.received+">", func(m *nats.Msg) { f.receive(m, heard) })
	if err == nil {
		err = f.sub.SetPendingLimits(pendingMessages, pendingBytes)
	}
	if err == nil {
		f.elections, err = f.nc.Subscribe(electedSubject+f.stream, func(*nats.Msg) { f.delivery.setElected() })
	}
	return heard, err
}

// unsubscribe ends the subscription. The caller holds work.
func (f *follower) unsubscribe() {
	for _, sub := range []**nats.Subscription{&f.sub, &f.elections} {
		if *sub != nil {
			_ = (*sub).Unsubscribe() // it fails only if the connection is closed
			*sub = nil
		}
	}
}

// receive handles a message that the log has published. heard names the subscription.
func (f *follower) receive(m *nats.Msg, heard chan struct{}) {
	s, err := storedOf(m)
	if err != nil || !strings.HasPrefix(s.subject, f.stored) {
		return
	}
	f.work.Lock()
	defer f.work.Unlock()
	if f.state == followStarting && f.heard == heard && s.subject == f.stored+f.delivery.probe {
		f.state, f.probe = followProbed, s
		if !f.progress.hasPlace() {
			f.progress.startAt(s)
		}
		close(heard)
		return
	}
	for f.state == followProbed && f.heard == heard {
		f.held.Wait()
	}
	if f.state != followLive || f.heard != heard {
		return
	}
	switch last, at := f.progress.position(); {
	case s.seq <= last && s.at > at:
		f.rollback(fmt.Sprintf("message %d was stored again, after %d", s.seq, last))
	case s.seq <= last: // it came twice
	case s.seq > last+1:
		f.fill(s.seq - 1)
		if last, _ = f.progress.position(); s.seq == last+1 {
			f.delivery.next(s)
		}
	default:
		f.delivery.next(s)
	}
}

// rollback begins again, in a new epoch: the log has lost its end and uses sequence numbers again.
// The caller holds work.
func (f *follower) rollback(why string) {
	if f.state != followLive {
		return
	}
	f.log.Error("natsbus: a log has lost its end; its channels begin a new epoch", "log", f.stream, "because", why)
	f.state = followStarting
	f.heard = nil
	f.progress.interrupt("it begins a new epoch")
}

const (
	fillBatch = 256
	// fillTime is how long a replica may be behind before the leader is asked, message by message.
	fillTime  = time.Second
	fillPause = 5 * time.Millisecond
)

// fill delivers everything after the follower's position up to at least seq, or as much as it can
// get. The log has messages up to seq, although some may have been dropped since. The caller holds
// work.
func (f *follower) fill(seq uint64) {
	began := time.Now()
	for f.state == followLive && f.ctx.Err() == nil {
		last, _ := f.progress.position()
		if last >= seq {
			return
		}
		list, err := f.readOn(last, time.Since(began) > fillTime)
		if err != nil {
			f.log.Warn("natsbus: what a log has published could not be read", "log", f.stream, "after", last,
				"error", err)
			return // the next look tries again
		}
		if len(list) == 0 {
			if time.Since(began) > 2*fillTime { // the leader does not have it either: it was dropped
				f.delivery.skipTo(seq)
				return
			}
			f.pause(fillPause)
			continue
		}
		f.delivery.take(list)
	}
}

// readOn returns messages after last, from the nearest replica or from the leader.
func (f *follower) readOn(last uint64, leader bool) ([]stored, error) {
	if !leader {
		list, _, err := f.direct(f.ctx, f.stream, directGet{Seq: last + 1, Next: ">", Batch: fillBatch})
		return list, err
	}
	s, found, err := f.leaderGet(f.ctx, f.stream, directGet{Seq: last + 1, Next: ">"})
	if !found || err != nil {
		return nil, err
	}
	return []stored{s}, nil
}

// lookAtReplica delivers what the log has and the follower has not heard. It reads without work, so
// that a replica that answers late holds up neither what comes meanwhile nor subscribers.
func (f *follower) lookAtReplica() {
	for f.isLive() {
		last, _ := f.progress.position()
		list, err := f.readOn(last, false)
		if err != nil || len(list) == 0 {
			return // the leader's look says whether that is a problem
		}
		f.work.Lock()
		if f.state == followLive {
			f.delivery.take(list)
		}
		f.work.Unlock()
	}
}

// rollbackLooks is how many looks in a row have to find the log's leader behind this node. A new
// leader is behind while it applies what its predecessor has committed.
const rollbackLooks = 4

// lookAtLeader compares the follower with the log's leader: a replica that hangs does not know it.
func (f *follower) lookAtLeader() {
	before, _ := f.progress.position()
	i, err := f.info(f.ctx, f.stream)
	if err != nil {
		f.setProblem("its leader does not answer: " + err.Error())
		return
	}
	f.grow(f.ctx, f.logName, i)
	f.work.Lock()
	defer f.work.Unlock()
	last, _ := f.progress.position()
	f.progress.saw(i)
	switch {
	case i.State.Last < before:
		if f.looks.behind++; f.looks.behind >= rollbackLooks {
			f.looks.behind = 0
			f.rollback("the leader has fewer messages than this node has received")
		}
		return
	case last < i.State.Last && last == before:
		if f.looks.ahead++; f.looks.ahead > 1 { // the replica had a second since the last look
			f.setProblem("messages are missing")
			f.fill(i.State.Last)
		}
	default:
		f.looks.ahead = 0
	}
	f.looks.behind = 0
	switch last, _ := f.progress.position(); {
	case !i.hasQuorum():
		f.setProblem("most of its replicas are silent: it stores nothing")
	case last >= i.State.Last || f.looks.ahead == 0:
		f.setProblem("")
	}
}

// subscribe makes r a receiver of one of the log's channels.
func (f *follower) subscribe(channel string, r bus.Receiver) error {
	err := f.delivery.registry.add(channel, r, func(at *topic) {
		at.log = f.stream
		if at.epoch == "" {
			at.epoch = channelEpoch(f.progress.epochNow(), channel)
		}
	})
	if err != nil {
		return err
	}
	// A message that is being handled may have missed r. When it has been, a History includes it.
	f.work.Lock()
	defer f.work.Unlock()
	return nil
}
