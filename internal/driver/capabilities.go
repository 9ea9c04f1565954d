package driver

import (
	"io"
	"net"
	"os"
	"time"
)

// Capabilities are what a driver does beyond the methods of Driver, and what it asks of its owner.
// They are the same from Open to Shutdown. The zero value is a driver that has the methods of
// Driver alone. The engine reads them once for each driver, so none costs anything for an event.
type Capabilities struct {
	// ThreadBound asks for one operating system thread: the thread of the first call makes every
	// later one, Wake aside. The owner locks its goroutine to that thread, and the driver never
	// changes hands.
	ThreadBound bool
	// Own makes the calling goroutine the owner, between two calls of the owner before. Nil: the
	// driver does not check its callers.
	Own func()
	// SendMany is Send for each of the batch, in any order, with helpers where Options.Helpers
	// allows them and it pays. It returns when all is handed over. Nil: Send serves.
	SendMany func(batch []Outgoing)
	// Cut is CloseWrite for output that is not complete: see BreakOff. Nil: CloseWrite serves.
	Cut func(id ID)
	// Look has the next Poll serve a connection, or an attempt to dial, before its turn. What has
	// come for it is emitted, and what is queued is offered to the kernel once more. That Poll does
	// not wait, and may serve no other connection. Nil: a Poll leaves nothing for the next one that
	// was there when it began.
	Look func(id ID)
	// TakeAccepted is what the driver has accepted of a listener and, because of StopAccept, not
	// reported. Nil: there is no such peer, and none comes before ResumeAccept. Where the field is
	// nil, there never is one.
	TakeAccepted func(listener ID) Socket
	// Full reports whether the last Poll has served as many connections as one serves at most, so
	// that it may have left others for the next one. Nil: that is not known.
	Full func() bool
	// Control calls f with the descriptor of a connection, which stays open until f returns. It
	// fails with ErrStale for an id that is not live, and with ErrUnsupported for a connection
	// without a descriptor. Nil: no connection has one to show.
	Control func(id ID, f func(fd uintptr)) error
}

// Facilities are what a System offers beyond its methods. A nil field is a facility that it does
// not have. Any goroutine may call the functions.
type Facilities struct {
	// Threads knows the process's threads by number.
	Threads Threads
	// Linger returns some time later, or at once; other goroutines run meanwhile. A simulation has
	// it, because no goroutine is held up by chance there.
	Linger func()
	// Ballast keeps the garbage collector's target up until release is called.
	Ballast func() (release func())
	// Spare opens a descriptor whose one use is to be closed when there is no other.
	Spare func() (io.Closer, error)
	// Pair connects a socket for a driver with a net.Conn for goroutines.
	Pair func() (Socket, net.Conn, error)
	// NewWatcher makes a Watcher.
	NewWatcher func() (Watcher, error)
	// Moves is for connections that go on in another process, or in another engine of this one.
	// Nil: sockets of this System stay in it.
	Moves *Moves
}

// Moves are what can be done with a Socket that no driver has, beyond its methods: see Moving in
// the contract. Any goroutine may call the functions, one at a time for a Socket. They fail with
// ErrStale for a socket that was given on, and with ErrUnsupported for one of another System.
type Moves struct {
	// Unread is what has been received of s and not delivered, which the driver that attaches s
	// delivers first. The caller must not change it.
	Unread func(s Socket) []byte
	// Share makes a second Socket of the same connection. What is unread stays with s alone.
	Share func(s Socket) (Socket, error)
	// Lend calls f with the descriptor of s, which stays open until f returns. Nil: sockets have no
	// descriptors.
	Lend func(s Socket, f func(fd uintptr)) error
	// Receive makes a Socket of the descriptor of a connected stream socket, which it takes, also
	// on error. Nil: as with Lend.
	Receive func(fd uintptr) (Socket, error)
	// ShareListener makes a second Listener of the same address and backlog. Both are shared, as
	// after Listener.File, until Unshare. Nil: listeners stay.
	ShareListener func(l Listener) (Listener, error)
	// Listener makes a Listener of a duplicate of one: see Listener.File. f stays the caller's. It
	// is shared, as after File, until Unshare. Nil: as with Lend.
	Listener func(f *os.File) (Listener, error)
}

// Threads knows of the process's threads by number. Any goroutine.
type Threads interface {
	// Thread is the calling thread.
	Thread() int
	// Ran is for how long a thread has had a processor in all; -1 if that cannot be had.
	Ran(thread int) time.Duration
	// Ready reports whether a thread runs or waits for a processor, and is known not to wait for
	// anything else.
	Ready(thread int) bool
}
