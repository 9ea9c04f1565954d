package natsbus

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/nats-io/nats.go"
)

// History implements bus.Bus. Top is the position to which this node has followed the log.
func (b *Bus) History(ctx context.Context, t bus.Topic, q bus.Query) (bus.History, error) {
	if err := b.usable(ctx); err != nil {
		return bus.History{}, err
	}
	if t.Keep.Size <= 0 {
		return bus.History{}, bus.ErrNoHistory
	}
	token, err := tokenOf(t.Name)
	if err != nil {
		return bus.History{}, err
	}
	f, err := b.live(ctx, t)
	if err != nil {
		return bus.History{}, err
	}
	if err := f.reach(ctx, t.Name, q); err != nil {
		return bus.History{}, err
	}
	after := uint64(0) // what is not after it is not needed
	if q.Since != nil && !q.Reverse {
		after = q.Since.Offset
	}
	f.mu.Lock()
	h := bus.History{Top: bus.Position{Offset: f.last, Epoch: channelEpoch(f.epoch, t.Name)}}
	recent, from := f.tail.of(f.stored+token, after), f.tail.from
	f.mu.Unlock()
	b.registry.barrier(t.Name) // a delivery up to Top may still run
	if q.Since != nil && q.Since.Epoch != "" && q.Since.Epoch != h.Top.Epoch {
		return h, nil
	}
	if q.Limit == 0 && (q.Since == nil || q.Reverse) {
		return h, nil
	}
	err = f.read(ctx, f.stored+token, t.Keep, q, recent, from, &h)
	return h, err
}

// errMayBeShort says that the log ends before a client's position, and that the others may have
// elected another leader meanwhile and stored more. The client has to try again.
var errMayBeShort = errors.New("natsbus: the log's leader does not hear most replicas: they may have stored more")

// reachTime is how long a reader waits for the position of a client that was ahead of this node. It
// is what client libraries wait for an answer.
const reachTime = 5 * time.Second

// reach waits until this node has followed the log to q.Since, if the log goes that far. The
// position is ahead of this node if the client has it from a node that has died. Then the log may
// have no leader yet. The client waits until it has, because one that is sent away comes back later
// than necessary.
func (f *follower) reach(ctx context.Context, channel string, q bus.Query) error {
	if q.Since == nil || q.Reverse {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	for {
		last, _ := f.position()
		if q.Since.Offset <= last || q.Since.Epoch != "" && q.Since.Epoch != channelEpoch(f.epochNow(), channel) {
			return nil
		}
		call := f.floors.begin(f)
		if err := f.waitUnless(ctx, q.Since.Offset, call.done); !errors.Is(err, errOther) {
			return err
		}
		err := call.err
		switch {
		case err == nil && q.Since.Offset <= call.ends.Last:
			return f.waitFor(ctx, q.Since.Offset)
		case err == nil && call.ends.Sure:
			return nil
		case err == nil:
			err = errMayBeShort
		}
		pause, stop := context.WithTimeout(ctx, tryAgain)
		_ = f.waitFor(pause, q.Since.Offset) // the next turn sees whether it has come
		stop()
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

// read reads the channel's messages up to h.Top. recent are those after from.
func (f *follower) read(ctx context.Context, subject string, keep bus.Retention, q bus.Query, recent []stored,
	from uint64, h *bus.History) error {
	list, complete := recent, q.Since != nil && !q.Reverse && q.Since.Offset <= h.Top.Offset
	if q.Since == nil || q.Reverse || q.Since.Offset < from {
		older, err := f.older(ctx, subject, keep.Size, q, from)
		if err != nil {
			return err
		}
		complete = complete && older.complete
		list = append(older.list, recent...)
	}
	list, dropped := selected(list, keep, q)
	h.Complete = complete && !dropped
	for _, s := range list {
		r := reader{rest: s.data}
		isPublication := form(r.byte()) == formPublication
		p := r.publication()
		if !isPublication || r.wrong { // this node does not understand it: see follower.skip
			h.Complete = false
			continue
		}
		p.Version = nil
		p.Position = bus.Position{Offset: s.seq, Epoch: h.Top.Epoch}
		h.Publications = append(h.Publications, p)
	}
	if q.Reverse {
		slices.Reverse(h.Publications)
	}
	n := len(h.Publications)
	if q.Limit >= 0 && n > q.Limit {
		h.Publications, h.Complete = h.Publications[:q.Limit], false
	}
	return nil
}

// witnessed reports whether list has a message at or before since. The channel drops the oldest
// first, so it has everything after that.
func witnessed(list []stored, since uint64) bool { return len(list) > 0 && list[0].seq <= since }

// selected applies the retention and the query's position. dropped says that the retention, or
// Forget, has taken something after Since.
func selected(list []stored, keep bus.Retention, q bus.Query) (kept []stored, dropped bool) {
	oldest := time.Now().Add(-keep.Age).UnixNano()
	since := uint64(0)
	if q.Since != nil {
		since = q.Since.Offset
	}
	for i := len(list) - 1; i >= 0; i-- {
		s := list[i]
		forgotten := len(s.data) > 0 && form(s.data[0]) == formForgotten
		if s.at <= oldest || forgotten || len(list)-i > keep.Size {
			dropped = !q.Reverse && s.seq > since
			list = list[i+1:]
			break
		}
	}
	at, found := slices.BinarySearchFunc(list, since, func(s stored, since uint64) int {
		switch {
		case s.seq < since:
			return -1
		case s.seq > since:
			return 1
		}
		return 0
	})
	switch {
	case q.Since == nil:
		return list, dropped
	case q.Reverse:
		return list[:at], dropped
	case found:
		at++
	}
	return list[at:], dropped
}

// A part is messages of a channel, from a replica.
type part struct {
	list     []stored
	all      int  // messages of the channel, those that are too new for list included
	complete bool // after Query.Since, none is missing
}

// maxReads bounds how many reads of a log a replica gets at the same time. A replica answers one
// after the other, even if the reader has given up. Without the bound, when all clients of a node
// come back at once, it would only answer requests that are older than requestTime.
const maxReads = 16

// older reads the channel's messages up to the sequence number top. The messages before q.Since are
// not among them, unless q is in reverse.
func (f *follower) older(ctx context.Context, subject string, size int, q bus.Query, top uint64) (p part, err error) {
	if err := f.awaitReplica(ctx, top); err != nil {
		return p, err
	}
	select {
	case f.reads <- struct{}{}:
		defer func() { <-f.reads }()
	case <-ctx.Done():
		return p, f.late(ctx)
	case <-f.b.closing:
		return p, bus.ErrClosed
	}
	if q.Since == nil || q.Reverse {
		return f.messagesFrom(ctx, subject, size, 1, top)
	}
	since := q.Since.Offset
	if p, err = f.messagesFrom(ctx, subject, size, max(since, 1), top); err != nil {
		return p, err
	}
	p.complete, err = f.hasAll(ctx, subject, size, since, p)
	return p, err
}

// hasAll reports whether p, which a replica has of a channel from since on, is everything that the
// channel got after since.
func (f *follower) hasAll(ctx context.Context, subject string, size int, since uint64, p part) (bool, error) {
	switch {
	case witnessed(p.list, since):
		return true, nil
	case p.all > size: // the channel may have dropped some because it has too many
		return false, nil
	}
	first, _, err := f.b.direct(ctx, f.stream, directGet{Seq: 1, Next: subject})
	if err != nil || witnessed(first, since) {
		return err == nil, err
	}
	// No message shows that nothing was dropped between it and the others. If the log still has
	// everything after since but what channels drop because they have too many, nothing was.
	ends, err := f.floors.ask(ctx, f)
	return ends.First <= since+1, err
}

// messagesFrom reads the channel's messages from one sequence number up to another.
func (f *follower) messagesFrom(ctx context.Context, subject string, size int, from, top uint64) (p part, err error) {
	for {
		list, pending, err := f.b.direct(ctx, f.stream, directGet{Seq: from, Next: subject, Batch: size + 1})
		if err != nil {
			return p, err
		}
		p.all += len(list)
		for _, s := range list {
			if s.seq > top {
				return p, nil
			}
			p.list = append(p.list, s)
		}
		if pending == 0 || len(list) == 0 {
			return p, nil
		}
		from = list[len(list)-1].seq + 1
	}
}

// awaitReplica returns when the replica that answers direct gets has everything up to seq. A
// replica applies a message a little later than the leader publishes it.
func (f *follower) awaitReplica(ctx context.Context, seq uint64) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		f.mu.Lock()
		there := f.replica >= seq
		f.mu.Unlock()
		if there {
			return nil
		}
		list, _, err := f.b.direct(ctx, f.stream, directGet{Seq: seq, Next: ">"})
		if err != nil {
			return err
		}
		if len(list) > 0 {
			f.mu.Lock()
			f.replica = max(f.replica, list[0].seq)
			f.mu.Unlock()
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return f.late(ctx)
		case <-f.b.closing:
			return bus.ErrClosed
		}
	}
}

// floors asks the leader for the ends of the log. Callers that wait at the same time share a
// request, which has begun after each of them.
type floors struct {
	mu      sync.Mutex
	running bool
	next    *floorCall // begins when the running one has ended
}

type floorCall struct {
	done chan struct{}
	ends logEnds
	err  error
}

// logEnds are the sequence numbers of a log's first and last message. They are sure if no other
// leader can have stored more.
type logEnds struct {
	First, Last uint64
	Sure        bool
}

// begin returns a call that begins after this one.
func (c *floors) begin(f *follower) *floorCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = &floorCall{done: make(chan struct{})}
	}
	mine := c.next
	if !c.running {
		c.running = true
		f.done.Go(func() { c.run(f) })
	}
	return mine
}

func (c *floors) ask(ctx context.Context, f *follower) (logEnds, error) {
	mine := c.begin(f)
	select {
	case <-mine.done:
		return mine.ends, mine.err
	case <-ctx.Done():
		return logEnds{}, ctx.Err()
	}
}

// run makes calls until none is wanted.
func (c *floors) run(f *follower) {
	for {
		c.mu.Lock()
		call := c.next
		c.next = nil
		c.running = call != nil
		c.mu.Unlock()
		if call == nil {
			return
		}
		i, err := f.b.info(f.ctx, f.stream)
		call.ends, call.err = logEnds{i.State.First, i.State.Last, i.heardMost(leadsAlone)}, err
		close(call.done)
	}
}

// Forget implements bus.Bus. It stores a tombstone that replaces what the channel has. A purge
// would hide from the others that something is missing.
func (b *Bus) Forget(ctx context.Context, t bus.Topic) error {
	if err := b.usable(ctx); err != nil {
		return err
	}
	if t.Keep.Size <= 0 {
		return bus.ErrNoHistory
	}
	token, err := tokenOf(t.Name)
	if err != nil {
		return err
	}
	f, err := b.live(ctx, t)
	if err != nil {
		return err
	}
	for {
		reply, g, drop := b.inbox.expect(firstOnly)
		err := b.kept.PublishMsg(&nats.Msg{Subject: f.stored + token, Reply: reply, Data: []byte{byte(formForgotten)},
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
		case <-b.closing:
			err = bus.ErrClosed
		}
		drop()
		if err == nil {
			return f.waitFor(ctx, seq)
		}
		if !mayRetry(err) || ctx.Err() != nil {
			return err
		}
	}
}
