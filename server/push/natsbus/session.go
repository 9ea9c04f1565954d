package natsbus

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A session is the parts of a Bus from the time that it connects to NATS until it leaves. A bus has
// one session, or several with a gap between two of them: see Freeze. A new session has the places
// in the logs up to which its predecessor has followed them. It does nothing until it is opened.
type session struct {
	*conn            // to NATS, and what all parts know
	inbox     *inbox // the answers to this node's requests
	nodes     *nodes // the other nodes
	questions *questions
	presence  *presence
	logs      *logs // a follower for each
	leaders   *leaders
	passing   *passing // what no log keeps
	publisher *publisher

	opened     atomic.Bool
	background sync.WaitGroup
	endOnce    sync.Once
}

// newSession makes the parts, which are not connected yet.
func newSession(b *Bus) *session {
	n := newConn(b.config)
	s := &session{conn: n, inbox: newInbox(n), nodes: newNodes(n)}
	s.questions = newQuestions(s.inbox, s.nodes, b.services)
	s.presence = &presence{registry: b.registry, questions: s.questions}
	j := &jetStream{s.inbox}
	streams := &streams{jetStream: j, config: b.config, nodes: s.nodes}
	s.logs = newLogs(streams, s.questions, b.registry, b.config.Parts)
	s.leaders = &leaders{streams: streams, logs: s.logs}
	s.passing = &passing{conn: n, registry: b.registry, holds: newHolds()}
	s.nodes.returned = s.nodeReturned
	if b.config.Server != nil {
		s.nodes.say.Store(uint32(signBehind)) // until catchUp
	}
	s.publisher = newPublisher(j, s.logs, s.passing, b.receipts)
	return s
}

// isOpen reports whether the session has connections.
func (s *session) isOpen() bool { return s.opened.Load() }

// open connects. Nothing comes in yet.
func (s *session) open() error {
	if s.isOpen() {
		return nil
	}
	if err := s.connect(s.leaders.config, s.logs.forgetReplicas); err != nil {
		s.disconnect()
		return err
	}
	s.opened.Store(true)
	return nil
}

// begin subscribes, follows the logs, and starts what runs in the background.
func (s *session) begin(ctx context.Context) error {
	for name := range s.nodes.unheard() { // until it has given a sign, publications may not reach it
		s.passing.holds.begin(name)
	}
	for _, open := range []func() error{s.inbox.open, s.nodes.open, s.questions.open} {
		if err := open(); err != nil {
			return err
		}
	}
	s.questions.services.serve(questionPresent, s.presence.answer)
	s.questions.services.serve(questionFollows, s.logs.vouch)
	s.questions.services.serve(questionHold, s.hold)
	if err := s.passing.open(); err != nil {
		return err
	}
	if err := s.flush(ctx); err != nil {
		return err
	}
	s.logs.begin()
	s.background.Go(s.nodes.beat)
	s.background.Go(s.lookAround)
	s.background.Go(s.catchUp)
	return nil
}

// lookAroundEvery is how often the node looks for logs that it does not follow, and for leaders to
// move.
const lookAroundEvery = 10 * time.Second

// lookAround looks around until the session ends.
func (s *session) lookAround() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timer := time.NewTicker(lookAroundEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			s.logs.followOthers(ctx)
			s.leaders.balance(ctx)
		case <-s.closing:
			return
		}
	}
}

// catchUp says that this node may lead, when its part of the logs has caught up.
func (s *session) catchUp() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.background.Go(func() {
		<-s.closing
		cancel()
	})
	if s.leaders.awaitCurrent(ctx) != nil {
		return
	}
	s.nodes.setCurrent()
}

// handled returns when the receivers have what NATS had sent when it was called, or ctx ends.
func (s *session) handled(ctx context.Context) error {
	if err := s.flush(ctx); err != nil {
		return err
	}
	done := make(chan struct{})
	if err := s.nc.Barrier(func() { close(done) }); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end ends the session. away says that the node will be back: the others expect it.
func (s *session) end(away bool) {
	s.endOnce.Do(func() {
		if away {
			s.nodes.say.Store(uint32(signAway))
		} else {
			s.nodes.say.Store(uint32(signLeaving))
		}
		close(s.closing)
		s.logs.close()
		s.background.Wait()
		s.disconnect()
	})
}
