package resp

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/soak"
)

// This file is what TestClientLiveness asks of a client, besides what its commands and
// subscriptions see themselves.

// probe looks at the client again and again, until everything has ended.
func (l *livenessWorld) probe() {
	if l.stuck++; !l.waits() {
		l.stuck = 0
	}
	if l.stuck == 3 {
		l.wrong("waits", "commands wait while a connection has room")
	}
	l.checkAttempts()
	if l.w.Now().Before(l.cured.Add(l.bound)) {
		l.w.AfterFunc(20*time.Millisecond, l.probe)
	}
}

// checkAttempts looks for connections that are longer in their setup than DialTimeout. They have
// half a second for bytes under way.
func (l *livenessWorld) checkAttempts() {
	limit := cmp.Or(l.client.DialTimeout, DefaultDialTimeout)
	for _, c := range l.server.conns {
		hangs := c.nc != nil && c.ready.IsZero() && c.hung && !c.paused && c.fate.stage <= inSetup && l.hasSetup()
		if hangs && !c.judged && l.w.Now().Sub(c.opened) > limit+500*time.Millisecond {
			c.judged = true
			l.wrong("dial", "connection %d, whose setup hangs, lives for %v, DialTimeout is %v", c.number,
				l.w.Now().Sub(c.opened), limit)
		}
	}
}

// hasSetup reports whether the client waits for an answer before it sends commands.
func (l *livenessWorld) hasSetup() bool {
	c := l.client
	return c.TLSConfig != nil || c.Protocol != RESP2 || c.Password != "" || c.Name != ""
}

// waits reports whether a command waits for one connection and another has room.
func (l *livenessWorld) waits() bool {
	room, waiting := false, false
	for _, k := range l.client.links {
		k.mu.Lock()
		l.checkQueue(k)
		ready := k.conn != nil && k.conn.ready
		if k.waiting.n > 0 && k.waiting.first.queued == 0 && (!ready || k.conn.nc.Queued() < clientWriteLimit/2) {
			waiting = true
		}
		if ready && k.waiting.n == 0 && k.pending() < k.c.maxPending {
			room = true
		}
		k.mu.Unlock()
	}
	return room && waiting
}

// checkQueue looks for memory of commands that need it no more.
func (l *livenessWorld) checkQueue(k *link) {
	for c := k.waiting.first; c != nil; c = c.next {
		if c.waits && c.state.Load() == callLeft && c.queued == 0 {
			l.wrong("kept", "a command waits, and its Do has returned")
		}
	}
	for _, conn := range []*clientConn{k.conn, k.retired} {
		if conn == nil {
			continue
		}
		for c := conn.sent.first; c != nil; c = c.next {
			if cap(c.request) > keptRequest {
				l.wrong("kept", "%d bytes of a command that has been sent are kept", cap(c.request))
			}
		}
	}
}

// checkEnded is for the end of the bound.
func (l *livenessWorld) checkEnded() {
	for _, x := range l.calls {
		if x.ended == 0 {
			l.wrong("hangs", "command %d has not ended %v after the cure; it has come %d times", x.id, l.bound, x.came)
		}
	}
	for _, s := range l.subs {
		if s.confirmed.IsZero() && !s.closed {
			l.wrong("hangs", "subscription %d is neither confirmed nor refused %v after the cure", s.number, l.bound)
		}
	}
}

// checkWell uses the client in the cured world.
func (l *livenessWorld) checkWell() {
	const limit = 12 * time.Second
	for range 3 {
		id := len(l.calls)
		l.w.Go(func() { l.command(l.r.IntN(2) == 0) })
		l.w.RunFor(limit)
		if l.calls[id].ended == 0 {
			l.wrong("hangs", "a command does not end in a cured world")
		}
	}
	done := false
	l.w.Go(func() { l.subscribe(); done = true })
	l.w.RunFor(limit)
	if !done {
		l.wrong("hangs", "Subscribe does not return in a cured world")
	}
	for range 2 { // the second time there is a message before, so that all have to come
		for _, channel := range channelNames {
			l.server.publish(channel)
		}
		l.w.RunFor(limit)
	}
	for _, s := range l.subs {
		if s.closed || s.sub == nil {
			continue
		}
		for _, channel := range channelNames {
			if s.gets(channel) == 0 {
				continue
			}
			if got, all := s.last[channel], l.server.published[channel]; got != all {
				l.wrong("silent", "subscription %d (confirmed at %v) has message %d of %q last, not %d", s.number,
					s.confirmed.Sub(sim.Epoch), got, channel, all)
			}
		}
	}
}

// checkKept looks for what is left of commands that have ended.
func (l *livenessWorld) checkKept() {
	for i, k := range l.client.links {
		k.mu.Lock()
		if n := k.pending(); n > 0 {
			l.wrong("kept", "connection %d: %d commands are pending when all have ended", i, n)
		}
		k.mu.Unlock()
	}
}

// checkCollected looks for what a garbage collection leaves of the user's, of commands and
// subscriptions that have ended.
func (l *livenessWorld) checkCollected() {
	runtime.GC()
	for _, x := range l.calls {
		if x.ended > 0 && x.owned.Value() != nil {
			l.wrong("kept", "something refers to command %d, which has ended (%v)", x.id, x.err)
		}
	}
	for _, s := range l.subs {
		if s.closed && s.owned.Value() != nil {
			l.wrong("kept", "something refers to subscription %d, which has ended", s.number)
		}
	}
}

// checkGoroutines waits until there are as few goroutines as before the run. After other problems
// it ends them.
func (l *livenessWorld) checkGoroutines(before int) {
	if len(l.problems) > 0 {
		l.w.Kill()
	}
	for begin := time.Now(); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Since(begin) > soak.Patience(10*time.Second) {
			all := make([]byte, 1<<16)
			l.wrong("leak", "%d goroutines are left:\n%s", runtime.NumGoroutine()-before,
				all[:runtime.Stack(all, true)])
			l.w.Kill()
			return
		}
	}
}

// onPush is Client.OnPush.
func (l *livenessWorld) onPush(v Value) {
	if len(v.Elems) != 3 || v.Elems[0].Text() != "invalidate" {
		if l.server.lies() {
			return // garbage
		}
		l.wrong("push", "OnPush gets %v", v)
		return
	}
	conn, n := int(v.Elems[1].Int), int(v.Elems[2].Int)
	if last := l.pushes[conn]; n != last+1 {
		l.wrong("push", "connection %d: push message %d behind %d", conn, n, last)
	}
	l.pushes[conn] = n
}

// onLost is Client.OnLost.
func (l *livenessWorld) onLost(sub *Subscription, err error) {
	_, refused := errors.AsType[Error](err)
	l.note("lost: %v", err)
	if refused == errors.Is(err, ErrLost) || refused && l.well {
		l.wrong("lost", "OnLost gets %v", err)
	}
	l.lost[sub]++
}

// closeClient closes the client, and perhaps uses it then.
func (l *livenessWorld) closeClient() {
	l.closed = l.w.Now()
	l.note("Close")
	_ = l.client.Close()
	if l.r.IntN(2) == 0 {
		return
	}
	ctx, now := context.Background(), l.w.Now()
	_, err := l.client.Do(ctx, "CMD", "0")
	_, other := l.client.Subscribe(ctx, func(string, []byte) {}, "a")
	if err != ErrClientClosed || other != ErrClientClosed || l.w.Now().Sub(now) > time.Millisecond {
		l.wrong("close", "after Close: %v, %v", err, other)
	}
}
