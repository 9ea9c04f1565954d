// Package driver is the seam between Myriad's engine and whatever moves its bytes: epoll, kqueue,
// io_uring, a goroutine per connection, or a simulator with no kernel at all. Its unit is bytes and
// completions, not readiness, because that is the level at which all of these look alike
// (docs/adr/0001).
//
// # The contract
//
// A [System] is a world: it opens drivers, binds listeners, and supplies time and execution. A
// [Driver] serves one loop.
//
// Capabilities. What a driver does beyond the methods of Driver, and what it asks of its owner, it
// declares in [Capabilities]; a System declares its own in [Facilities]. A wrapper hands the inner
// one's on, with the fields that it changes.
//
// Ownership. One goroutine owns a driver and makes every call on it, except Wake, which any
// goroutine may call at any time until Shutdown. Nothing below locks for the owner. A driver may
// change hands between two calls, everything before happening before everything after; one that
// checks its callers is told so (Capabilities.Own). A driver with Capabilities.ThreadBound stays on
// the thread of its first call, Wake aside. Open may run on another thread.
//
// Events. A driver speaks only from inside Poll, through [Events], and never from inside another
// method, so a caller is never re-entered. During an event the owner may call any method but Poll,
// on any id. Every event names an [ID]; a call with an id that is no longer live does nothing (Send
// still consumes its chain), and no event is ever emitted for one: generations are checked on both
// ways.
//
// Life of a connection. It begins with Attach (of an accepted or imported Socket), or with Dial
// followed by Dialed. It ends with exactly one of Closed, Detached or DialFailed, after which the
// driver never mentions the id again. That last event comes only when every operation on the
// connection has completed or been cancelled; the operating system's handle is not used anew
// before, and the slot may be, with another generation, from within the event on. After Close,
// Abort or Detach has been called, no other event but the last one is emitted for the id, not even
// from the batch that is being delivered. Close and Abort while dialling end in Closed(nil).
// Nothing but these two may be called before Dialed. A connection whose both sides have ended still
// waits for Close.
//
// Receiving. Received lends a view of memory that the driver owns: it is valid until the event
// returns, the owner may write to it, its capacity is its length, and it is never empty. Bytes
// arrive in order. After Pause, what was already under way may still be delivered, at most one
// receive buffer of bytes, or the end; the engine holds it. A paused connection still reports that
// it was reset. Ended says that the peer will send no more; it comes once for an id, after the last
// byte, and sending still works. Bytes that came before a reset may be lost with it. A driver
// serves its connections in turns: one connection is given at most one receive buffer in a Poll.
//
// Events that do not return. An event may end its goroutine (runtime.Goexit) instead of returning.
// When all deferred calls of that goroutine have run, another one owns the driver, told or not; its
// first Poll goes on behind the event that did not return: nothing of the batch is lost, and
// nothing of it comes twice.
//
// Sending. Send takes everything in the chain, and with it the references on the blocks, until the
// bytes are sent or dropped. What could be handed over at once needs no event; the rest, which Send
// returns as queued, is reported by Sent as it goes, in order. Short sends are the driver's
// business. When sending fails the driver drops what is queued and goes on receiving what the peer
// had sent, then emits Closed with the error. SendFile is ordered after everything sent before it,
// and until it has been reported sent the owner sends nothing else. A file that ends before it
// should is a failed send, with io.ErrUnexpectedEOF. CloseWrite acts after what is queued, and
// nothing is sent after it. Close and Abort drop what is queued: an owner that wants it sent waits.
//
// Detaching. What a driver has received ahead of Received travels in the Socket; a Detach that
// fails later ends in Closed.
//
// Moving. A System with Facilities.Moves shares the connection of a Socket, as duplicates of a
// descriptor do. The connection ends when the last of its Sockets and drivers has closed it. Until
// then Close sends nothing to the peer, and Abort no reset. CloseWrite acts on the connection at
// once. At most one driver may be attached to it. Bytes that come while none is attached wait.
// Shares may be in other processes.
//
// Accepting. Accepted hands over a Socket, which the owner attaches to this driver or to another
// one of the same System, or closes. AcceptFailed stops accepting on that listener until
// ResumeAccept; EMFILE and ENFILE are among its errors, and it does not spin. StopAccept leaves
// waiting peers in the backlog; no Accepted follows it, so what a driver had under way it keeps for
// ResumeAccept, shows to Capabilities.TakeAccepted, or closes. A listener is served in each Poll,
// however many connections are ready, so that the owner alone decides how many peers come in.
//
// Time. Poll is told how long it may wait and takes no timers; the engine keeps those.
package driver

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/myriad-go/myriad/buf"
)

// Errors that a driver returns. The engine wraps them with the operation and the address.
var (
	ErrUnsupported = errors.New("not supported")
	ErrNotIdle     = errors.New("output is still queued")
	ErrStale       = errors.New("connection is gone")
	ErrFull        = errors.New("no slot left")
)

// An ID names a connection or a listener of one driver: 8 bits of loop, 24 of slot, 32 of
// generation. The zero ID is never live.
type ID uint64

// MaxSlots bounds the connections and listeners of one driver.
const MaxSlots = 1 << 24

// MakeID packs an id. Generations start at 1.
func MakeID(loop uint8, slot, generation uint32) ID {
	return ID(loop)<<56 | ID(slot&(MaxSlots-1))<<32 | ID(generation)
}

// Loop, Slot and Generation unpack it. A live slot is a small dense integer, fit to index a table.
func (id ID) Loop() uint8        { return uint8(id >> 56) }
func (id ID) Slot() uint32       { return uint32(id>>32) & (MaxSlots - 1) }
func (id ID) Generation() uint32 { return uint32(id) }

// Split is Slot and Generation.
func (id ID) Split() (slot, generation uint32) { return id.Slot(), id.Generation() }

// Events is what a driver tells its owner, from inside Poll only.
type Events interface {
	Accepted(listener ID, s Socket)
	AcceptFailed(listener ID, err error)
	Dialed(id ID, local Addr)
	DialFailed(id ID, err error)
	Received(id ID, p []byte)
	Ended(id ID)
	Sent(id ID, n int64)
	Closed(id ID, err error) // nil after Close and Abort; for a listener after CloseListener
	Detached(id ID, s Socket)
}

// A Driver moves the bytes of one loop. The package comment is its contract.
type Driver interface {
	// Listen starts accepting on l, which stays the caller's to close after CloseListener.
	Listen(l Listener) (ID, error)
	StopAccept(listener ID)
	ResumeAccept(listener ID)
	CloseListener(listener ID)

	// Attach takes s, also on error, when it is closed.
	Attach(s Socket) (ID, error)
	// Dial starts to connect to a resolved address (*net.TCPAddr or *net.UnixAddr).
	Dial(addr net.Addr) (ID, error)

	Send(id ID, c *buf.Chain) (queued int64)
	// SendFile takes f, also on error, and closes it when it is done with it.
	SendFile(id ID, f File, off, n int64) (queued int64, err error)
	CloseWrite(id ID)
	Pause(id ID)
	Resume(id ID)
	Close(id ID)
	Abort(id ID) // the peer sees a reset
	// Detach fails with ErrNotIdle while output is queued, and with ErrUnsupported where the handle
	// cannot leave.
	Detach(id ID) error

	// Poll emits what has happened and returns how many events it emitted. wait 0 never blocks, a
	// negative one waits without end. Wake, or an event, ends the wait.
	Poll(wait time.Duration, ev Events) (int, error)
	Wake()
	Capabilities() Capabilities
	// Shutdown releases everything; live connections are aborted without events. Poll has returned
	// for the last time.
	Shutdown() error
}

// An Outgoing is what Capabilities.SendMany sends on one connection. A batch has at most one for
// each.
type Outgoing struct {
	ID     ID
	Chain  *buf.Chain
	Queued int64 // what Send would return
}

// A Socket is a connection between drivers: accepted, imported or detached, and owned by its
// holder.
type Socket interface {
	Local() Addr
	Remote() Addr
	Conn() (net.Conn, error) // consumes the socket, also on error
	Close() error
}

// A Leaver is a Socket that can tell whether its peer has ended its side, or the connection,
// without reading from it: what the peer has sent before may still be there. So an engine need not
// serve a peer that has given up while it waited.
type Leaver interface{ HasLeft() bool }

// A Listener is a bound, listening address that drivers of the same System can accept from.
type Listener interface {
	Addr() net.Addr
	File() (*os.File, error) // a duplicate, for another process; its Fd leaves the listener in non-blocking mode
	// Unshare says that one duplicate is gone: of File, ShareListener or Moves.Listener. When all
	// are, the address is this Listener's own again, and ends with it. Any goroutine.
	Unshare()
	// Refuse ends listening at once, while a driver may still hold the listener: new peers are
	// refused and the address can be bound again. Any goroutine.
	Refuse()
	// Close releases it, when no driver accepts from it any more.
	Close() error
}

// A File is a duplicate of an *os.File that outlives the user's Close of the original.
type File interface {
	io.ReaderAt
	io.Closer
}

// Options are what the engine asks of each driver.
type Options struct {
	ReadBuffer int // bytes lent to one Received at most
	// Helpers is how many goroutines beside the owner may make system calls for it during SendMany.
	Helpers int
	// KeepAlive is for TCP connections that the driver accepts or dials. After so much silence the
	// kernel probes the peer every ProbeInterval, and closes the connection after Probes without an
	// answer. 0: never. Sockets of Import stay as they are.
	KeepAlive time.Duration
}

// These are the probes of package net, too.
const (
	ProbeInterval = 15 * time.Second
	Probes        = 9
)

// A System is the world an engine lives in.
type System interface {
	Name() string
	Open(loop uint8, o Options) (Driver, error)
	Listen(ctx context.Context, network, addr string) (Listener, error)
	// Import takes nc over, also on error. A conn without a descriptor of its own fails with
	// ErrUnsupported and is left as it was.
	Import(nc net.Conn) (Socket, error)
	Duplicate(f *os.File) (File, error)
	Resolve(ctx context.Context, network, addr string) ([]net.Addr, error)

	Now() time.Time
	Go(f func())
	NewParker() Parker
	// Executor runs blocking user code in place of a pool, so that a simulator can order it. Nil:
	// there is none.
	Executor() Executor
	Facilities() Facilities
}

// A Parker blocks one goroutine until another lets it go on: one permit, as in a binary semaphore.
// Everything above the driver that waits does so on a Parker, because a simulation must know which
// goroutines wait.
type Parker interface {
	Park() // takes the permit, waiting for it
	// the same, but waits no longer than d, which is above 0; never too short a time without a
	// permit
	ParkFor(d time.Duration)
	Unpark() // makes the permit available; never blocks
}

// An Executor has the methods of *workers.Pool that run tasks.
type Executor interface {
	Go(ctx context.Context, f func()) error
	TryGo(f func()) bool
	TryGoAll(fs []func()) int
	Close(ctx context.Context) error
}
