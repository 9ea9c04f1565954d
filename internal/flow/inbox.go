package flow

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/internal/driver"
)

// ErrDiscarded is what Read returns after Discard or Move.
var ErrDiscarded = errors.New("flow: the rest of the body has been discarded")

// An Inbox holds bytes from the peer until a goroutine reads them. Reset makes it ready for use.
//
// It limits the peer in one of two ways. A pausing Inbox says in Put that it is full, and in Read
// when it is half empty again. The loop stops reading in between. So the Inbox holds at most its
// high mark and what one Put brings. A crediting Inbox counts what has been consumed, for a window
// that the peer respects: the caller grants the high mark first, and then what Credit returns.
type Inbox struct {
	mu       sync.Mutex
	data     buf.Chain       // guarded by mu
	err      error           // guarded by mu; why no more comes, io.EOF in order; the first stays
	late     error           // guarded by mu; Interrupt's
	readers  []driver.Parker // guarded by mu; of the calls of Wait
	high     int32           // constant between two calls of Reset
	owed     int32           // guarded by mu; bytes consumed since Credit
	state    inboxState      // guarded by mu
	complete atomic.Bool     // err is io.EOF; written under mu
}

type inboxState uint8

const (
	crediting  inboxState = 1 << iota // the peer respects a window
	full                              // Put has said so, and Read not yet the opposite
	told                              // Read has said that credit is due, and Credit was not called yet
	discarding                        // it is not read any more
)

// Reset drops what is there and makes the Inbox ready for another body. No call may be under way.
func (in *Inbox) Reset(high int, credits bool) {
	in.data.Release()
	in.err, in.late, in.high, in.owed, in.state = nil, nil, int32(high), 0, 0
	in.complete.Store(false)
	clear(in.readers)
	in.readers = in.readers[:0]
	if credits {
		in.state = crediting
	}
}

// Put adds a copy of p, which may be the last. full says that the loop should stop reading until
// Read or Discard tells it to go on; a crediting Inbox never says it. Bytes after the end, after
// Fail and after Discard are dropped, and count as consumed. L.
func (in *Inbox) Put(p []byte, last bool) (isFull bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err != nil || in.state&discarding != 0 {
		in.owed += int32(len(p))
	} else {
		in.data.Append(p)
	}
	if last {
		in.end(io.EOF)
	}
	if len(p) > 0 || last {
		in.wake()
	}
	if in.state&crediting != 0 || in.data.Len() < int(in.high) {
		return false
	}
	in.state |= full
	return true
}

// Fail ends the body: a Read that finds no bytes returns err. The first end stays, so that Fail
// after the last Put changes nothing. L.
func (in *Inbox) Fail(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.end(err)
	in.wake()
}

func (in *Inbox) end(err error) {
	if in.err == nil {
		in.err = err
		in.complete.Store(err == io.EOF)
	}
}

// Interrupt has a Read that finds neither bytes nor an end return err, for a deadline that has
// passed; nil lets it wait again. L or H.
func (in *Inbox) Interrupt(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.late = err
	if err != nil {
		in.wake()
	}
}

// Credit returns how many bytes have been consumed since the last call: read, or dropped. The loop
// grants the peer as many. L.
func (in *Inbox) Credit() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := in.owed
	in.owed = 0
	in.state &^= told
	return int(n)
}

// Read takes bytes. It returns 0 and no error if there are none yet: then the caller may Wait. The
// end comes with the last bytes if it is io.EOF, else behind them. tell: the loop should go on
// reading, or call Credit. H.
func (in *Inbox) Read(p []byte) (n int, tell bool, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.state&discarding != 0 {
		return 0, false, ErrDiscarded
	}
	n = in.data.CopyTo(p)
	in.data.Discard(n)
	in.owed += int32(n)
	left := in.data.Len()
	switch {
	case left > 0:
	case n == 0 && in.err == nil:
		err = in.late
	case n == 0 || in.err == io.EOF:
		err = in.err
	}
	return n, in.tell(left), err
}

// creditShare is the part of the high mark that a crediting Inbox keeps to itself. What is consumed
// and not credited is lost to the other bodies of a connection, which share a window. So it is a
// small part: all bodies together must not stop each other.
const creditShare = 16

// tell reports whether the loop has something to do, once each time. left bytes are unread. A
// crediting Inbox waits for its share. After the end it waits until all has been read: this body
// needs no more window, but the connection does.
func (in *Inbox) tell(left int) bool {
	if in.state&full != 0 && left <= int(in.high)/2 {
		in.state &^= full
		return true
	}
	if in.state&(crediting|told) != crediting || in.owed == 0 {
		return false
	}
	if in.owed < in.high/creditShare && (in.err == nil || left > 0) {
		return false
	}
	in.state |= told
	return true
}

// Wait parks the caller until Read may have something for it: bytes, an end, an interruption. It
// returns at once if Read has that already, and it may return for no reason. park calls p.Park; if
// it is nil, Wait does. The caller's park may let a lock go before that and take it again after it.
// Several goroutines may wait, each with a Parker of its own. H.
func (in *Inbox) Wait(p driver.Parker, park func(driver.Parker)) { in.wait(p, park, false) }

// WaitEnd is Wait for a caller that reads no more: it waits for an end or an interruption alone. H.
func (in *Inbox) WaitEnd(p driver.Parker, park func(driver.Parker)) { in.wait(p, park, true) }

func (in *Inbox) wait(p driver.Parker, park func(driver.Parker), forEnd bool) {
	in.mu.Lock()
	readable := in.data.Len() > 0 || in.state&discarding != 0
	if in.err != nil || in.late != nil || readable && !forEnd {
		in.mu.Unlock()
		return
	}
	in.readers = append(in.readers, p)
	in.mu.Unlock()
	if park == nil {
		p.Park()
	} else {
		park(p)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for i, r := range in.readers { // a permit that was left from before has woken it
		if r == p {
			in.readers = append(in.readers[:i], in.readers[i+1:]...)
			return
		}
	}
}

// Wake has the calls of Wait return that are under way. H.
func (in *Inbox) Wake() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.wake()
}

func (in *Inbox) wake() {
	for _, p := range in.readers {
		p.Unpark()
	}
	clear(in.readers)
	in.readers = in.readers[:0]
}

// Discard drops what is there and what still comes. Read fails with ErrDiscarded from then on. tell
// is as with Read. H.
func (in *Inbox) Discard() (tell bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.owed += int32(in.data.Len())
	in.data.Release()
	in.state |= discarding
	in.wake()
	return in.tell(0)
}

// Move is Discard for a caller that wants the unread bytes: it appends them to dst. They count as
// consumed. H.
func (in *Inbox) Move(dst *buf.Chain) (tell bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.owed += int32(in.data.Len())
	in.data.Move(dst)
	in.state |= discarding
	in.wake()
	return in.tell(0)
}

// A State is how an Inbox stands at one moment.
type State struct {
	Unread int   // bytes that Read has not taken
	Err    error // why no more bytes come: io.EOF at the end in order, nil as long as more may come
	Late   bool  // Interrupt was called last with an error
	Full   bool  // Put has said so, and neither Read nor Discard has told the loop to go on since
}

// State returns how the Inbox stands. L or H.
func (in *Inbox) State() State {
	in.mu.Lock()
	defer in.mu.Unlock()
	return State{Unread: in.data.Len(), Err: in.err, Late: in.late != nil, Full: in.state&full != 0}
}

// Complete reports whether the last bytes have come in order, read or not. It takes no lock. L or
// H.
func (in *Inbox) Complete() bool { return in.complete.Load() }
