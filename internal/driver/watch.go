package driver

import "net"

// A Watcher tells when net.Conns that it does not read itself may be read, which spares them a
// waiting goroutine. A System that has descriptors makes one: Facilities.NewWatcher. Its methods,
// and those of a Watch, may be called by any goroutine.
type Watcher interface {
	// Watch prepares to watch nc, which stays the caller's. Arm is followed by one call of ready,
	// when there are bytes, an end or an error to read, or at once if they are there; an Arm before
	// that call adds none. It comes on the Watcher's goroutine and must not block. Watch fails with
	// ErrUnsupported if nc has no descriptor.
	Watch(nc net.Conn, ready func()) (Watch, error)
	// Close ends the Watcher, when all that it made are closed.
	Close()
}

// A Watch is one connection of a Watcher.
type Watch interface {
	Arm()
	// Close forgets the connection, once; no ready comes after it. It must not be called by ready.
	Close()
}
