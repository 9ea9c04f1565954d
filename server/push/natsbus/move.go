package natsbus

import (
	"context"
	"errors"
	"time"
)

// This file moves a node to another process. NATS cannot move: it stops in the old process, and
// starts in the new one with the same name and folder. In between this node is silent, the others
// expect it, and its clients wait. What the logs have stored meanwhile is read from them: every log
// goes on from the place up to which the old process has delivered it.
//
// In the old process: PrepareMove, Freeze, WriteState; then Close, or Thaw if the new process
// fails. In the new one: Await, Freeze, Restore with its records and Done, and Thaw. Until Done has
// started NATS there, the old process can have it back: the folder has a lock.

var (
	errIsFrozen  = errors.New("natsbus: the bus is frozen already")
	errNotFrozen = errors.New("natsbus: the bus is not frozen: call Freeze")
)

// Await returns a bus that takes the place of one in another process. It is not connected, and
// c.Server is not running: see NewServer. Restore fills it, and Thaw lets it begin.
func Await(c Config) (*Bus, error) {
	b, err := newBus(c)
	if err != nil {
		return nil, err
	}
	b.awaits = true
	return b, nil
}

// prepareTime bounds how long PrepareMove waits for other nodes to lead, and to be up to date.
const prepareTime = 20 * time.Second

// PrepareMove has other nodes lead the logs and the cluster, right before Freeze. It returns an
// error if a log would take no publications while this node is silent: then the node should not
// move now. The caller calls CancelMove if it does not go on.
func (b *Bus) PrepareMove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, prepareTime)
	defer cancel()
	s := b.now()
	if !s.isOpen() {
		return nil
	}
	s.nodes.goAway()
	s.nodes.sayAgain()
	return s.leaders.giveAway(ctx)
}

// CancelMove undoes PrepareMove: this node may lead again.
func (b *Bus) CancelMove() {
	s := b.now()
	s.leaders.stepping.Store(false)
	s.nodes.stay()
}

// Freeze stops the bus until Thaw. When it returns nil, all calls have returned, everything that
// the receivers were given is in WriteState's places, and NATS has stopped in this process. Calls
// wait until their contexts end; Close refuses them. What other nodes publish without a history
// waits there, for up to two seconds. Notices from there are lost.
//
// It fails if a log is not followed, or ctx ends before. Then the bus goes on.
func (b *Bus) Freeze(ctx context.Context) error {
	if err := b.gate.freeze(ctx); err != nil {
		return err
	}
	b.thaws.Store(false)
	if b.awaits {
		return nil
	}
	s := b.session
	_, err := s.logs.places()
	if err == nil {
		err = s.leaders.leaveNone(ctx)
	}
	if err == nil {
		before := s.nodes.goAway() // a sign that it is alive would end what askHold begins
		s.askHold(ctx)
		if err = s.handled(ctx); err != nil && before != signAway {
			s.nodes.stay()
		}
	}
	if err != nil {
		b.gate.thaw()
		return err
	}
	if err = b.pause(); err != nil {
		b.Thaw()
		return err
	}
	if b.config.Server != nil {
		b.config.Server.Shutdown()
	}
	return nil
}

// pause ends the session, and puts one in its place that goes on from where that was. The bus is
// frozen. It returns an error if a log has ceased to be followed meanwhile.
func (b *Bus) pause() error {
	former := b.session
	former.end(true)
	places, err := former.logs.places()
	next := newSession(b)
	next.logs.goOnFrom(places)
	next.nodes.goOn(former.nodes.all())
	b.current.Lock()
	defer b.current.Unlock()
	b.session = next
	return err
}

// Thaw ends a freeze: NATS starts again, unless Restore has started it, and the logs go on. Calls
// wait for that. It returns at once; if NATS does not start, it is tried again until Close, because
// the other process may still have its folder or its port. Further calls do nothing.
func (b *Bus) Thaw() {
	if !b.gate.isFrozen() || b.thaws.Swap(true) {
		return
	}
	b.awaits = false
	b.reopening.Go(func() {
		for said := ""; ; {
			err := b.reopen()
			if err == nil {
				b.gate.thaw()
				return
			}
			if why := err.Error(); why != said {
				b.config.Logger.Error("natsbus: the node does not go on yet", "error", err)
				said = why
			}
			if !b.gate.pause(thawAgain) {
				return
			}
		}
	})
}

// thawAgain is how soon what has failed is tried again.
const thawAgain = 20 * time.Millisecond

// reopen starts NATS and begins the session. It can be called again after an error.
func (b *Bus) reopen() error {
	if err := b.connectFrozen(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	err := b.session.begin(ctx)
	if err != nil {
		_ = b.pause() // a session begins once; this one has followed no log
	}
	return err
}

// connectFrozen starts NATS in this process, and connects to it. Nothing comes in yet.
func (b *Bus) connectFrozen() error {
	if b.config.Server != nil {
		if err := b.config.Server.Start(); err != nil {
			return err
		}
	}
	return b.session.open()
}
