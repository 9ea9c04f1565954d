package hub

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/server/push/answer"
)

// sessions are those of a node that have not ended. The wheel has the list of them, and calls them
// at their deadlines.
type sessions struct {
	*node
	gate    *gate // shut: the node drains
	figures *figures
	backlog *backlog
	wheel   *wheel
	held    held
	secret  sessionSecret

	open     atomic.Int64  // how many have not ended, watchers included
	lastGone chan struct{} // closed when the node drains and the last session has ended
	goneOnce sync.Once     // closes lastGone

	timer sweepTimer
}

// A sweepTimer calls the sweeps of the wheel.
type sweepTimer struct {
	mu     sync.Mutex
	stop   func() bool
	closed bool
}

func newSessions(n *node, g *gate, f *figures, b *backlog) *sessions {
	return &sessions{node: n, gate: g, figures: f, backlog: b, wheel: newWheel(n.clock.Now()),
		lastGone: make(chan struct{})}
}

// Sessions returns the sessions that have not ended.
func (l *sessions) Sessions() []*Session { return l.wheel.all() }

// Clients returns the sessions of clients that have not ended, without those of operators.
func (l *sessions) Clients() []*Session {
	return slices.DeleteFunc(l.wheel.all(), func(s *Session) bool { return s.watcher })
}

// StartClock lets the hub's time run, until Shutdown: sessions have their pings and deadlines. tick
// is called about every 250 ms, one call at a time; nil: nothing is. It is called once.
func (l *sessions) StartClock(tick func(now time.Time)) {
	l.timer.mu.Lock()
	defer l.timer.mu.Unlock()
	if l.timer.closed {
		return
	}
	l.timer.stop = l.clock.AfterFunc(wheelSlot, func() {
		l.wheel.sweep(l.clock.Now())
		l.backlog.look(l.wheel.lateness.now, l.wheel.some)
		if tick != nil {
			tick(l.clock.Now())
		}
		l.StartClock(tick)
	})
}

// stopClock ends what StartClock has begun, and waits for a running sweep. It returns false if it
// was called before.
func (l *sessions) stopClock() bool {
	l.timer.mu.Lock()
	if l.timer.closed {
		l.timer.mu.Unlock()
		return false
	}
	l.timer.closed = true
	if l.timer.stop != nil {
		l.timer.stop()
	}
	l.timer.mu.Unlock()
	l.wheel.sweeping.Lock() // waits for a running sweep
	defer l.wheel.sweeping.Unlock()
	return true
}

// add counts s, and gives it the time that it has to connect.
func (l *sessions) add(s *Session) {
	l.open.Add(1)
	l.figures.connections.Add(s.counted())
	s.mu.Lock()
	s.endAt = l.clock.Now().Add(l.timing.Connect).UnixNano()
	l.wheel.set(s, s.endAt)
	s.mu.Unlock()
	if l.gate.IsDraining() {
		s.Disconnect(answer.DisconnectShutdown)
	}
}

// gone counts a session that has ended.
func (l *sessions) gone(s *Session) {
	l.figures.connections.Add(-s.counted())
	l.open.Add(-1)
	if l.gate.IsDraining() {
		l.checkGone()
	}
}

func (l *sessions) checkGone() {
	if l.open.Load() == 0 {
		l.goneOnce.Do(func() { close(l.lastGone) })
	}
}

// disconnectAll disconnects every client with "shutdown", after everything queued for it. It
// returns when all sessions have ended, or with ctx's error.
func (l *sessions) disconnectAll(ctx context.Context) error {
	list := l.wheel.all()
	if err := l.spread(ctx, len(list), func(i int) { list[i].Disconnect(answer.DisconnectShutdown) }); err != nil {
		return err
	}
	l.checkGone()
	select {
	case <-l.lastGone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// spreadStep is the time between two parts of a spread.
const spreadStep = 50 * time.Millisecond

// spread calls f with the numbers below count, over Timing.Spread: other nodes get the clients of
// this one a part at a time.
func (l *sessions) spread(ctx context.Context, count int, f func(int)) error {
	steps := max(1, int(l.timing.Spread/spreadStep))
	for step := range steps {
		for i := step * count / steps; i < (step+1)*count/steps; i++ {
			f(i)
		}
		if step == steps-1 || count == 0 {
			continue
		}
		next := make(chan struct{})
		stop := l.clock.AfterFunc(spreadStep, func() { close(next) })
		select {
		case <-next:
		case <-ctx.Done():
			stop()
			return ctx.Err()
		}
	}
	return nil
}

// A sessionSecret makes the ids of sessions that have no other secret.
type sessionSecret struct {
	once sync.Once
	key  [32]byte
}

// get returns the key, which it makes at its first call.
func (k *sessionSecret) get(from random) [32]byte {
	k.once.Do(func() { from.fill(k.key[:]) })
	return k.key
}

// set makes key the key, before the first call of get.
func (k *sessionSecret) set(key [32]byte) { k.once.Do(func() { k.key = key }) }

// of returns a UUID of version 8 (RFC 9562 §5.8) for a client, which others cannot compute.
func (k *sessionSecret) of(client clientID, from random) clientID {
	key := k.get(from)
	mac := hmac.New(sha256.New, key[:])
	mac.Write(client[:])
	id := clientID(mac.Sum(nil)[:len(clientID{})])
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	return id
}
