package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/nats-io/nats.go"
)

// An inbox sends requests, and gives each its own reply subject under one subscription.
type inbox struct {
	*conn
	replies string // begins all reply subjects

	mu      sync.Mutex
	next    uint64
	waiting map[string]*gather
}

// A gather collects the answers to one request.
type gather struct {
	whole func(m *nats.Msg) bool // reports whether m is the last answer
	msgs  []*nats.Msg
	done  chan struct{}
	ended bool
}

func newInbox(c *conn) *inbox {
	return &inbox{conn: c, replies: nats.NewInbox() + ".", waiting: make(map[string]*gather)}
}

// open subscribes to the answers.
func (i *inbox) open() error {
	_, err := i.nc.Subscribe(i.replies+"*", i.answer)
	return err
}

func (i *inbox) answer(m *nats.Msg) {
	i.mu.Lock()
	defer i.mu.Unlock()
	g := i.waiting[m.Subject[len(i.replies):]]
	if g == nil || g.ended {
		return
	}
	g.msgs = append(g.msgs, m)
	if g.whole(m) {
		g.ended = true
		close(g.done)
	}
}

// expect returns a reply subject and what collects its answers. The caller must call drop.
func (i *inbox) expect(whole func(*nats.Msg) bool) (reply string, g *gather, drop func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.next++
	key := strconv.FormatUint(i.next, 36)
	g = &gather{whole: whole, done: make(chan struct{})}
	i.waiting[key] = g
	return i.replies + key, g, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.waiting, key)
	}
}

func firstOnly(*nats.Msg) bool { return true }

const (
	// requestTime is how long one request may wait. The answer may have been lost with a node.
	requestTime = 2 * time.Second
	// tryAgain is the pause before what has failed is tried again.
	tryAgain = 250 * time.Millisecond
)

var errNoAnswer = errors.New("natsbus: JetStream does not answer")

// request sends one request and returns all answers.
func (i *inbox) request(ctx context.Context, subject string, body any, whole func(*nats.Msg) bool) ([]*nats.Msg,
	error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	reply, g, drop := i.expect(whole)
	defer drop()
	if err := i.nc.PublishRequest(subject, reply, data); err != nil {
		return nil, err
	}
	timer := time.NewTimer(requestTime)
	defer timer.Stop()
	select {
	case <-g.done:
		return g.msgs, nil
	case <-timer.C:
		return nil, errNoAnswer
	case <-i.closing:
		return nil, bus.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
