package natsbus

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
)

// A historyReader reads the messages that a log has kept of its channels: from the end in memory,
// and from the nearest replica. Any goroutine may call it.
type historyReader struct {
	*logName
	*jetStream
	progress *progress
	registry *registry
	ends     endsAsker
	reads    chan struct{} // has a place for each of maxReads readers
}

// newHistoryReader returns the reader of a log. What it starts ends with ctx, and is counted in
// background.
func newHistoryReader(ctx context.Context, name *logName, j *jetStream, p *progress, r *registry,
	background *sync.WaitGroup) *historyReader {
	return &historyReader{logName: name, jetStream: j, progress: p, registry: r,
		ends:  endsAsker{jetStream: j, stream: name.stream, ctx: ctx, background: background},
		reads: make(chan struct{}, maxReads)}
}

// read returns a channel's history. Top is the position to which this node has followed the log.
func (h *historyReader) read(ctx context.Context, t bus.Topic, token string, q bus.Query) (bus.History, error) {
	if err := h.reach(ctx, t.Name, q); err != nil {
		return bus.History{}, err
	}
	after := uint64(0) // what is not after it is not needed
	if q.Since != nil && !q.Reverse {
		after = q.Since.Offset
	}
	subject := h.stored + token
	top, recent, from := h.progress.recent(t.Name, subject, after)
	answer := bus.History{Top: top}
	h.registry.barrier(t.Name) // a delivery up to Top may still run
	if q.Since != nil && q.Since.Epoch != "" && q.Since.Epoch != top.Epoch {
		return answer, nil
	}
	if q.Limit == 0 && (q.Since == nil || q.Reverse) {
		return answer, nil
	}
	err := h.readUpToTop(ctx, subject, t.Keep, q, recent, from, &answer)
	return answer, err
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
func (h *historyReader) reach(ctx context.Context, channel string, q bus.Query) error {
	if q.Since == nil || q.Reverse {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	for {
		last, _ := h.progress.position()
		epoch := channelEpoch(h.progress.epochNow(), channel)
		if q.Since.Offset <= last || q.Since.Epoch != "" && q.Since.Epoch != epoch {
			return nil
		}
		call := h.ends.begin()
		if err := h.progress.waitUnless(ctx, q.Since.Offset, call.done); !errors.Is(err, errOther) {
			return err
		}
		err := call.err
		switch {
		case err == nil && q.Since.Offset <= call.ends.Last:
			return h.progress.waitFor(ctx, q.Since.Offset)
		case err == nil && call.ends.Sure:
			return nil
		case err == nil:
			err = errMayBeShort
		}
		pause, stop := context.WithTimeout(ctx, tryAgain)
		_ = h.progress.waitFor(pause, q.Since.Offset) // the next turn sees whether it has come
		stop()
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

// readUpToTop reads the channel's messages up to to.Top. recent are those after from.
func (h *historyReader) readUpToTop(ctx context.Context, subject string, keep bus.Retention, q bus.Query,
	recent []stored, from uint64, to *bus.History) error {
	list, complete := recent, q.Since != nil && !q.Reverse && q.Since.Offset <= to.Top.Offset
	if q.Since == nil || q.Reverse || q.Since.Offset < from {
		older, err := h.older(ctx, subject, keep.Size, q, from)
		if err != nil {
			return err
		}
		complete = complete && older.complete
		list = append(older.list, recent...)
	}
	list, dropped := selected(list, keep, q)
	to.Complete = complete && !dropped
	for _, s := range list {
		r := reader{rest: s.data}
		isPublication := form(r.byte()) == formPublication
		p := r.publication()
		if !isPublication || r.wrong { // this node does not understand it: see delivery.skip
			to.Complete = false
			continue
		}
		p.Version = nil
		p.Position = bus.Position{Offset: s.seq, Epoch: to.Top.Epoch}
		to.Publications = append(to.Publications, p)
	}
	if q.Reverse {
		slices.Reverse(to.Publications)
	}
	n := len(to.Publications)
	if q.Limit >= 0 && n > q.Limit {
		to.Publications, to.Complete = to.Publications[:q.Limit], false
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
func (h *historyReader) older(ctx context.Context, subject string, size int, q bus.Query, top uint64) (p part,
	err error) {
	if err := h.awaitReplica(ctx, top); err != nil {
		return p, err
	}
	select {
	case h.reads <- struct{}{}:
		defer func() { <-h.reads }()
	case <-ctx.Done():
		return p, h.progress.late(ctx)
	case <-h.closing:
		return p, bus.ErrClosed
	}
	if q.Since == nil || q.Reverse {
		return h.messagesFrom(ctx, subject, size, 1, top)
	}
	since := q.Since.Offset
	if p, err = h.messagesFrom(ctx, subject, size, max(since, 1), top); err != nil {
		return p, err
	}
	p.complete, err = h.hasAll(ctx, subject, size, since, p)
	return p, err
}

// hasAll reports whether p, which a replica has of a channel from since on, is everything that the
// channel got after since.
func (h *historyReader) hasAll(ctx context.Context, subject string, size int, since uint64, p part) (bool, error) {
	switch {
	case witnessed(p.list, since):
		return true, nil
	case p.all > size: // the channel may have dropped some because it has too many
		return false, nil
	}
	first, _, err := h.direct(ctx, h.stream, directGet{Seq: 1, Next: subject})
	if err != nil || witnessed(first, since) {
		return err == nil, err
	}
	// No message shows that nothing was dropped between it and the others. If the log still has
	// everything after since but what channels drop because they have too many, nothing was.
	ends, err := h.ends.ask(ctx)
	return ends.First <= since+1, err
}

// messagesFrom reads the channel's messages from one sequence number up to another.
func (h *historyReader) messagesFrom(ctx context.Context, subject string, size int, from, top uint64) (p part,
	err error) {
	for {
		list, pending, err := h.direct(ctx, h.stream, directGet{Seq: from, Next: subject, Batch: size + 1})
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
func (h *historyReader) awaitReplica(ctx context.Context, seq uint64) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if h.progress.isInReplica(seq) {
			return nil
		}
		list, _, err := h.direct(ctx, h.stream, directGet{Seq: seq, Next: ">"})
		if err != nil {
			return err
		}
		if len(list) > 0 {
			h.progress.replicaHas(list[0].seq)
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return h.progress.late(ctx)
		case <-h.closing:
			return bus.ErrClosed
		}
	}
}

// An endsAsker asks the leader for the ends of the log. Callers that wait at the same time share a
// request, which has begun after each of them.
type endsAsker struct {
	*jetStream
	stream     string
	ctx        context.Context // of all requests
	background *sync.WaitGroup

	mu      sync.Mutex
	running bool
	next    *endsCall // begins when the running one has ended
}

type endsCall struct {
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
func (e *endsAsker) begin() *endsCall {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.next == nil {
		e.next = &endsCall{done: make(chan struct{})}
	}
	mine := e.next
	if !e.running {
		e.running = true
		e.background.Go(e.run)
	}
	return mine
}

func (e *endsAsker) ask(ctx context.Context) (logEnds, error) {
	mine := e.begin()
	select {
	case <-mine.done:
		return mine.ends, mine.err
	case <-ctx.Done():
		return logEnds{}, ctx.Err()
	}
}

// run makes calls until none is wanted.
func (e *endsAsker) run() {
	for {
		e.mu.Lock()
		call := e.next
		e.next = nil
		e.running = call != nil
		e.mu.Unlock()
		if call == nil {
			return
		}
		i, err := e.info(e.ctx, e.stream)
		call.ends, call.err = logEnds{i.State.First, i.State.Last, i.heardMost(leadsAlone)}, err
		close(call.done)
	}
}
