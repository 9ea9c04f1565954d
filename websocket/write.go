package websocket

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/outbox"
)

const (
	// copied is up to which size a frame is copied into output that is there already, where it
	// shares memory with its neighbours. Larger ones are queued as they are.
	copied = 2 << 10

	// earlyLimit is how many bytes may be written before the connection has arrived at its loop,
	// when Options.WriteLimit is 0.
	earlyLimit = 256 << 10

	// spare is what a close frame may take above the write limit.
	spare = 256
)

// errClosing is net.ErrClosed in the words of this package.
var errClosing = fmt.Errorf("websocket: the connection is closing or closed: %w", net.ErrClosed)

// Write queues a message, all of it or nothing. op is OpText or OpBinary; that text is UTF-8 is the
// caller's duty. When the output is at its limit, Options.Overflow decides. By default Write waits
// until the peer has made room; after Options.WriteTimeout it fails with myriad.ErrFull. It fails
// with myriad.ErrTooLarge above the engine's Config.MaxWrite, with net.ErrClosed once closing has
// begun, and with myriad.ErrOnLoop where it would have to wait and must not. Any goroutine.
func (c *Conn) Write(op Op, p []byte) error {
	if err := checkMessage(op, p); err != nil {
		return err
	}
	return c.write(outgoing{op: op, p: p})
}

// WriteContext is Write that waits for room, until ctx ends, whatever Options.Overflow and
// WriteTimeout say. Any goroutine, as Write.
func (c *Conn) WriteContext(ctx context.Context, op Op, p []byte) error {
	if err := checkMessage(op, p); err != nil {
		return err
	}
	return c.writeWaiting(ctx, outgoing{op: op, p: p}, 0, nil)
}

// NextWriter writes a message in parts, for one that is large or not yet known as a whole. A part
// is sent when 32 KiB have been written and more come: in a frame of its own (RFC 6455 §5.4). So
// the writer holds 32 KiB at most and, if the message is compressed, a compressor. A message that
// fits one part is written by Close, as Conn.Write does; Close ends every other, and must be
// called.
//
// A part waits for room for up to Options.WriteTimeout, whatever Overflow says. If a part cannot be
// written, the message cannot be completed: Write or Close returns the error and the connection is
// closed. In a callback of DispatchInline, which must not wait, use Conn.Write.
//
// From the first part to Close no other message can be sent, because its frames must not come
// between. For Write the output is full meanwhile, and Overflow decides, but OverflowClose waits as
// OverflowBlock does. So the goroutine that has a writer must not wait in Write. A member of a
// group gets messages later, for which it would otherwise be removed or which it would miss.
// Control frames pass.
//
// The writer belongs to one goroutine. It fails for an op that is not OpText or OpBinary, and with
// net.ErrClosed once closing has begun. Any goroutine, with several writers for one connection one
// after the other.
func (c *Conn) NextWriter(op Op) (io.WriteCloser, error) {
	if err := checkMessage(op, nil); err != nil {
		return nil, err
	}
	if !c.end.writable() {
		return nil, errClosing
	}
	return &messageWriter{c: c, op: op}, nil
}

func checkMessage(op Op, p []byte) error {
	switch {
	case op != OpText && op != OpBinary:
		return fmt.Errorf("websocket: a message of opcode %d (%v): use OpText or OpBinary", byte(op), op)
	case len(p) > buf.MaxBlock-maxHeader:
		return fmt.Errorf("websocket: a message of %d bytes: %w", len(p), myriad.ErrTooLarge)
	}
	return nil
}

// outgoing is a message on its way out.
type outgoing struct {
	op       Op
	p        []byte
	prepared *Prepared // of p, or nil

	// in its place: a step of a message in parts, which is run under Conn.mu and fails with ErrFull
	// to be run again
	step func() error
}

func (c *Conn) write(m outgoing) error {
	err := c.attempt(m, noRoom{probe: true})
	if err != errWait {
		return err
	}
	s := c.settings()
	c.mu.Lock()
	nc, room, policy := c.nc, c.room, c.overflow
	c.mu.Unlock()
	if policy != OverflowBlock {
		if nc != nil && (room == roomOpen || nc.Buffered() > 0) {
			outbox.Flush(nc, s.flushWait) // only what the kernel refuses counts
		}
		if err = c.attempt(m, noRoom{}); err != errWait {
			return err
		}
	}
	if room == roomStalled {
		s.count.Refused.Add(1)
		return s.errStalled()
	}
	err = c.writeWaiting(context.Background(), m, s.writeTimeout, nil)
	if errors.Is(err, myriad.ErrOnLoop) && nc != nil && nc.Flush() { // it had not been offered to the kernel
		if again := c.attempt(m, noRoom{probe: true}); again != errWait {
			return again
		}
	}
	return err
}

// attempt queues a message. If there is no room, no decides.
func (c *Conn) attempt(m outgoing, no noRoom) (err error) {
	if m.step != nil {
		return c.attemptStep(m.step, no)
	}
	var b *buf.Block
	copyUpTo := copied
	inContext := c.reader.rules.terms.outTakeover && c.reader.rules.packs(len(m.p))
	if !inContext {
		if b, copyUpTo, err = c.frame(m); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if inContext {
		if b, err = c.sendInContext(m); b == nil {
			return err
		}
	}
	blocked := c.blocked() && c.end.writable()
	switch {
	case blocked && no.probe && !c.overflow.Queues():
		b.Release()
		return errWait
	case blocked:
		return c.full(b, no)
	case !no.probe:
		b.Retain() // for full
	}
	err = c.send(b, copyUpTo)
	switch full := errors.Is(err, myriad.ErrFull); {
	case full && no.probe:
		return errWait
	case full:
		return c.full(b, no)
	case !no.probe:
		b.Release()
	}
	return err
}

// frame encodes a message that refers to no other one.
func (c *Conn) frame(m outgoing) (b *buf.Block, copyUpTo int, err error) {
	rules := c.reader.rules
	s := rules.settings
	byReference := m.prepared != nil && s.random == nil // a mask has to be each frame's own
	if rules.packs(len(m.p)) {
		if byReference && len(m.p) <= 1<<rules.terms.outBits {
			b = m.prepared.pack(s.packing.level)
		} else if b, err = rules.pack(m.op, m.p, nil); b != nil || err != nil {
			return b, copied, err
		}
	}
	switch {
	case b != nil:
		return b.Retain(), 0, nil
	case byReference:
		return m.prepared.frame.Retain(), 0, nil
	}
	b, err = s.encode(frameHeader{fin: true, op: m.op}, m.p)
	return b, copied, err
}

// attemptStep runs one step of a message in parts, and says that there is no room for it.
func (c *Conn) attemptStep(step func() error, no noRoom) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := step()
	if !errors.Is(err, myriad.ErrFull) {
		return err
	}
	if no.parker != nil {
		c.needSlow().Await(no.parker)
	}
	return errWait
}

// sendInContext compresses and sends a message on a connection whose messages refer to earlier
// ones. The peer's window has the compressed messages in the order of the queue, so all of this
// happens under mu. A message that has to wait, and may still be dropped, is sent uncompressed: its
// frame is returned.
func (c *Conn) sendInContext(m outgoing) (*buf.Block, error) {
	if c.end.writable() && !c.blocked() {
		b, err := c.reader.rules.pack(m.op, m.p, c.contexts().out)
		if err != nil {
			return nil, err
		}
		if b != nil {
			if err = c.send(b, copied); err == nil {
				c.contexts().sent(m.p, c.reader.rules)
			}
			if !errors.Is(err, myriad.ErrFull) {
				return nil, err
			}
		}
	}
	return c.settings().encode(frameHeader{fin: true, op: m.op}, m.p)
}

// control queues a control frame, past messages that wait.
func (c *Conn) control(op Op, p []byte) error {
	b, err := c.settings().encode(frameHeader{fin: true, op: op}, p)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.send(b, copied)
}

// encode makes a frame, which the caller releases. A client's has a fresh mask, §5.3.
func (s *settings) encode(h frameHeader, p []byte) (*buf.Block, error) {
	if h.masked = s.random != nil; h.masked {
		var key [4]byte
		if _, err := s.random.Read(key[:]); err != nil {
			return nil, fmt.Errorf("websocket: DialOptions.Random: %w", err)
		}
		h.key = binary.LittleEndian.Uint32(key[:])
	}
	return frameOf(h, p), nil
}

// send gives the engine a frame. It consumes b; up to copyUpTo bytes are copied if there is output
// to join. It is called under mu.
func (c *Conn) send(b *buf.Block, copyUpTo int) error {
	if !c.end.writable() {
		b.Release()
		return errClosing
	}
	if c.nc == nil {
		return c.sendEarly(b)
	}
	if b.Len() <= copyUpTo && c.nc.Queued() > 0 {
		_, err := c.nc.Write(b.Bytes())
		b.Release()
		return err
	}
	if nc, plain := c.nc.(*myriad.Conn); plain { // a call through the interface allocates its arguments
		return nc.WriteBlocks(b)
	}
	return c.nc.WriteBlocks(b)
}

// sendEarly keeps a frame until the connection has arrived at its loop.
func (c *Conn) sendEarly(b *buf.Block) error {
	defer b.Release()
	limit, _ := c.limits()
	if limit == 0 {
		limit = earlyLimit
	}
	r := c.needCold()
	if len(r.early) > 0 && len(r.early)+b.Len() > limit {
		return myriad.ErrFull
	}
	r.early = append(r.early, b.Bytes()...)
	return nil
}

// force queues p above the limit: a close frame must not be lost because its peer is slow. It is
// called under mu.
func (c *Conn) force(p []byte) error {
	_, err := c.nc.Write(p)
	if !errors.Is(err, myriad.ErrFull) {
		return err
	}
	c.nc.SetWriteLimit(c.nc.Queued() + len(p) + spare)
	_, err = c.nc.Write(p)
	limit, _ := c.limits()
	c.nc.SetWriteLimit(limit)
	return err
}

// An Overflow says what happens to a message when the connection's output is at its limit, because
// the peer reads too slowly. The kernel is offered what is queued before: only bytes that it
// refuses count, unless the loop stays busy for 10 ms. A policy concerns whole messages, never
// parts of one, and never control frames. In a [Group] it is the member's policy that applies.
//
//	policy              Write                                  a member of a Group
//	OverflowBlock       waits for room, up to WriteTimeout     gets it later, in order, or is removed
//	OverflowFail        fails with myriad.ErrFull              is removed at once
//	OverflowDropNewest  drops the message, returns nil         misses the message
//	OverflowDropOldest  drops those that have waited longest   misses those
//	OverflowLatest      replaces the one that waits            gets the newest only
//	OverflowClose       closes with OverflowStatus             is closed with OverflowStatus
//	OverflowSample      drops every second one that waits      misses those
//
// A member with OverflowBlock is removed after WriteTimeout. A member that is removed is given to
// Group.OnFull, or closed with 1013.
type Overflow = outbox.Policy

const (
	// OverflowBlock has Write wait for room, at most for Options.WriteTimeout. Then Write fails
	// with an error that is myriad.ErrFull and os.ErrDeadlineExceeded. Each following Write fails
	// at once, until there is room. In a callback that runs on a loop, the loop goes on without it
	// (Options.Dispatch). Write fails with myriad.ErrOnLoop, and ErrFull too, where it must not
	// wait: in a callback of DispatchInline, in Loop.Do, and on a driver that is bound to a thread.
	OverflowBlock = outbox.Block
	// OverflowFail has Write fail with myriad.ErrFull and take nothing. OnDrained is called when
	// there is room again.
	OverflowFail = outbox.Fail
	// OverflowDropNewest drops the message. Write returns nil.
	OverflowDropNewest = outbox.DropNewest
	// OverflowDropOldest drops those that have waited longest, as many as make room. Half of the
	// limit is theirs; the other half is output on its way to the kernel, of which nothing is
	// dropped.
	OverflowDropOldest = outbox.DropOldest
	// OverflowLatest lets one message wait, above half of the limit, and replaces it by a newer
	// one: for peers that need only the current state. A low WriteLimit keeps what they get fresh.
	OverflowLatest = outbox.Latest
	// OverflowClose closes the connection with Options.OverflowStatus.
	OverflowClose = outbox.Close

	// OverflowSample lets messages wait as OverflowDropOldest does, but above the limit it drops
	// every second one that waits. So what the peer gets is spread evenly over the time, and ends
	// with the newest: for measurements whose course matters.
	OverflowSample = outbox.Sample
)

// errWait asks the caller of attempt to wait for room. It is never returned to users.
var errWait = outbox.ErrBlocked

// errOnLoop is for a caller that must not wait.
var errOnLoop = fmt.Errorf("websocket: Write would wait for room: %w, and %w", myriad.ErrOnLoop, myriad.ErrFull)

// noRoom says what attempt does with a message for which there is no room. The zero value: what the
// policy says.
type noRoom struct {
	probe  bool          // return errWait, whatever the policy is
	parker driver.Parker // likewise, and unpark it when there may be room
	member *Member       // the policy; if that is OverflowBlock, the member is late
	late   bool          // the member is late, whatever the policy is
}

// SetOverflow changes the limit and the policy of this connection. limit is in bytes; 0 is
// Options.WriteLimit. Any goroutine.
func (c *Conn) SetOverflow(policy Overflow, limit int) error {
	if policy >= outbox.Policies || limit < 0 {
		return fmt.Errorf("websocket: SetOverflow(%v, %d): the policy must be one of those defined and the limit "+
			"not negative", policy, limit)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.overflow = policy
	if limit != c.settings().WriteLimit || c.cold != nil {
		c.needCold().limit = limit
	}
	if c.nc != nil {
		engine, _ := c.limits()
		c.nc.SetWriteLimit(engine)
	}
	return nil
}

// Dropped is how many messages Overflow has dropped on this connection. Any goroutine.
func (c *Conn) Dropped() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slow().Dropped()
}

// slow is what waits for room, or nil. It is called under mu.
func (c *Conn) slow() *outbox.Outbox[*buf.Block] {
	if c.cold == nil {
		return nil
	}
	return c.cold.slow
}

// needSlow is called under mu.
func (c *Conn) needSlow() *outbox.Outbox[*buf.Block] {
	r := c.needCold()
	if r.slow == nil {
		r.slow = new(outbox.Outbox[*buf.Block])
	}
	return r.slow
}

// limits are how many bytes the engine may queue, where 0 is the engine's own limit, and how many
// may wait besides. It is called under mu.
func (c *Conn) limits() (engine, room int) {
	limit := c.settings().WriteLimit
	if c.cold != nil && c.cold.limit > 0 {
		limit = c.cold.limit
	}
	p := c.overflow
	if limit == 0 && p.Queues() {
		limit = earlyLimit
	}
	return p.Split(limit)
}

// blocked reports whether a message has to wait behind others, or for the end of one in parts. It
// is called under mu.
func (c *Conn) blocked() bool {
	return c.cold != nil && (c.cold.parts == partsOpen || c.cold.slow.Waits())
}

// inParts reports whether a message in parts has begun. It is called under mu.
func (c *Conn) inParts() bool { return c.cold != nil && c.cold.parts == partsOpen }

// full is for a message that there is no room for. It consumes b. It is called under mu.
func (c *Conn) full(b *buf.Block, no noRoom) error {
	p := c.overflow
	waits := p == outbox.Block || no.late ||
		c.inParts() && !p.Queues() && (p == outbox.Close || no.member != nil)
	switch {
	case no.parker != nil:
		b.Release()
		c.needSlow().Await(no.parker)
		return errWait
	case waits:
		b.Release()
		if no.member != nil {
			l := &c.needCold().late
			if len(l.members) == 0 {
				l.since = c.clock().UnixMilli()
				c.nc.Notify() // the loop sets the timer
			}
			l.members = append(l.members, no.member)
		}
		return errWait
	case !p.Queues() && c.room == roomOpen:
		c.room = roomRefused
	}
	_, room := c.limits()
	switch c.needSlow().Put(b, outbox.Rules{Policy: p, Room: room, Counts: &c.settings().count}) {
	case outbox.Refused:
		return myriad.ErrFull
	case outbox.Closes:
		code := c.settings().overflowStatus
		err := fmt.Errorf("websocket: the peer is too slow: %w: %w", myriad.ErrFull,
			&CloseError{Code: code, Reason: tooSlow})
		c.end.failLocked(c, code, tooSlow, err)
		return errClosing
	}
	return nil
}

// tooSlow is the reason that a peer closed by OverflowClose is told.
const tooSlow = "too slow"

// advance gives the engine what waits, as far as it has room. It is called under mu.
func (c *Conn) advance() {
	for o := c.slow(); o.Waits(); o.Sent() {
		if c.inParts() || c.send(o.First().Retain(), copied) != nil {
			return // Drained follows, or the end of a message in parts, or the connection's
		}
	}
}

// forcePending queues what waits above the limit, because a close frame comes behind it. It is
// called under mu.
func (c *Conn) forcePending() {
	for o := c.slow(); o.Waits(); o.Sent() {
		switch {
		case c.inParts(): // no other message may come inside of one
		case c.nc != nil:
			_ = c.force(o.First().Bytes()) // the connection ends in any case
		default:
			c.cold.early = append(c.cold.early, o.First().Bytes()...)
		}
	}
}

// Drained is the engine's: there is room again. On the loop.
func (h *handler[C]) Drained(C) { (*Conn)(h).drains() }

func (c *Conn) drains() {
	c.mu.Lock()
	c.advance()
	tell := c.slow().Relieved()
	c.room = roomOpen
	c.slow().Wake()
	late := c.takeLate()
	c.mu.Unlock()
	for _, m := range late {
		m.shard.catchUp(m)
	}
	if tell && c.settings().OnDrained != nil {
		c.dispatch(event{kind: drained})
	}
}

// A waitingWrite is a message that waits for room.
type waitingWrite struct {
	c       *Conn
	m       outgoing
	expired func() error // ends the wait; nil: nothing does
}

func (w *waitingWrite) Try(p driver.Parker) error { return w.c.attempt(w.m, noRoom{parker: p}) }

func (w *waitingWrite) Forget(p driver.Parker) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	w.c.slow().Forget(p)
}

func (w *waitingWrite) Blocks() { w.c.settings().count.Waited.Add(1) }

func (w *waitingWrite) Expired() error {
	if w.expired == nil {
		return nil
	}
	return notWritten(w.expired())
}

func notWritten(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("websocket: the message was not written: %w", err)
}

// writeWaiting waits for room until ctx ends, expired says so, or limit has passed; 0: there is no
// limit.
func (c *Conn) writeWaiting(ctx context.Context, m outgoing, limit time.Duration, expired func() error) error {
	if err := ctx.Err(); err != nil {
		return notWritten(err)
	}
	e, err := c.engine()
	if err != nil {
		return err
	}
	switch err = outbox.Wait(ctx, e, limit, &waitingWrite{c, m, expired}); {
	case err == nil:
		return nil
	case err == myriad.ErrOnLoop:
		return errOnLoop
	case err == outbox.ErrStalled:
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.end.writable() {
			return errClosing
		}
		c.room = roomStalled
		c.needSlow().Refuse(&c.settings().count)
		return c.settings().errStalled()
	case err == ctx.Err():
		return notWritten(err)
	}
	return err
}

// engine is the connection's, or the one that it will come to.
func (c *Conn) engine() (*myriad.Engine, error) {
	if nc := c.conn(); nc != nil {
		return nc.Loop().Engine(), nil
	}
	return c.settings().on()
}

// writeMember is write for a group, which holds its lock. It returns errWait if m is late now: then
// Drained calls catchUp. A late member with OverflowBlock waits for its turn to be flushed, so that
// it does not hold up the loop.
func (c *Conn) writeMember(msg outgoing, m *Member) error {
	err := c.attempt(msg, noRoom{probe: true})
	if err != errWait {
		return err
	}
	c.mu.Lock()
	blocks, refused := c.overflow == OverflowBlock, c.room != roomOpen
	c.mu.Unlock()
	if m.late && blocks {
		return c.attempt(msg, noRoom{member: m})
	}
	if !c.nc.Flush() && !refused { // elsewhere than on the loop: the policy is for what the kernel refuses
		return c.attempt(msg, noRoom{member: m, late: true})
	}
	if err = c.attempt(msg, noRoom{probe: true}); err == errWait {
		err = c.attempt(msg, noRoom{member: m})
	}
	return err
}

// lateMembers are memberships of a connection that wait for room. Conn.mu guards them.
type lateMembers struct {
	members []*Member
	since   int64 // when the first began to wait, in milliseconds
}

// takeLate returns the members that wait for room on this connection, which wait no more. It is
// called under mu.
func (c *Conn) takeLate() (late []*Member) {
	if c.cold != nil {
		late, c.cold.late = c.cold.late.members, lateMembers{}
	}
	return late
}

// forgetLate is for a member that has left.
func (c *Conn) forgetLate(m *Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cold == nil {
		return
	}
	l := &c.cold.late
	if i := slices.Index(l.members, m); i >= 0 {
		l.members = slices.Delete(l.members, i, i+1)
	}
	if len(l.members) == 0 {
		*l = lateMembers{}
	}
}

// lateSince is when members began to wait for room, as Conn.now counts; 0: none waits.
func (c *Conn) lateSince() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cold == nil {
		return 0
	}
	return c.cold.late.since
}

// lateFor reports whether members have waited for room for that long.
func (c *Conn) lateFor(d time.Duration) bool {
	since := c.lateSince()
	return since > 0 && c.clock().UnixMilli()-since >= d.Milliseconds()
}

// lateDue is when members have waited for too long, as Conn.now counts; 0: never.
func (c *Conn) lateDue() int64 {
	since, limit := c.lateSince(), c.settings().writeTimeout
	if since == 0 || limit == 0 {
		return 0
	}
	return since + limit.Milliseconds()
}

// giveUpLate removes members that have waited for too long. On the loop.
func (c *Conn) giveUpLate(now int64) {
	if due := c.lateDue(); due == 0 || now < due {
		return
	}
	c.mu.Lock()
	late := c.takeLate()
	c.mu.Unlock()
	for _, m := range late {
		m.shard.giveUp(m)
	}
}

// A Prepared message is encoded once, and compressed once if connections want that, and queued on
// any number of them by reference. Its methods may be called from any goroutine.
type Prepared struct {
	op      Op
	frame   *buf.Block
	payload []byte // a view of frame
	refs    atomic.Int32

	mu     sync.Mutex
	packed *buf.Block // the frame for connections with compression, when the first one has asked for it
	tried  bool
}

// Prepare encodes a message. Release gives its memory back.
func Prepare(op Op, p []byte) (*Prepared, error) {
	if err := checkMessage(op, p); err != nil {
		return nil, err
	}
	m := &Prepared{op: op, frame: frameOf(frameHeader{fin: true, op: op}, p)}
	whole := m.frame.Bytes()
	m.payload = whole[len(whole)-len(p):]
	m.refs.Store(1)
	return m, nil
}

// Release ends the use of m, once for Prepare and once for each Retain. Where it is queued it stays
// until it has been sent. Without Release the memory is left to the garbage collector.
func (m *Prepared) Release() {
	if m.refs.Add(-1) > 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frame.Release()
	if m.packed != nil {
		m.packed.Release()
	}
}

// Retain requires one more Release, for another holder of m. It returns m.
func (m *Prepared) Retain() *Prepared {
	m.refs.Add(1)
	return m
}

// pack returns the compressed frame, or nil if it would not be smaller. The first connection's
// level decides.
func (m *Prepared) pack(level int) *buf.Block {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.tried {
		m.tried = true
		d := deflate(m.payload, nil, level, maxWindowBits)
		defer d.put()
		if len(d.out) < len(m.payload) {
			m.packed = frameOf(frameHeader{fin: true, rsv1: true, op: m.op}, d.out)
		}
	}
	return m.packed
}

// WritePrepared is Write for a prepared message. To a server, where each frame needs a mask of its
// own, it is encoded anew; and so it is for a connection whose window is smaller than the message.
func (c *Conn) WritePrepared(m *Prepared) error {
	return c.write(outgoing{op: m.op, p: m.payload, prepared: m})
}
