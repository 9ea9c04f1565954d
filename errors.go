package myriad

import (
	"errors"
	"net"

	"github.com/myriad-go/myriad/internal/driver"
)

var (
	// ErrFull says that a conn's output queue is at its limit. No byte was taken; Drained tells
	// when there is room.
	ErrFull = errors.New("myriad: the connection's write queue is full: wait for Drained, or raise the limit")
	// ErrTooLarge says that one Write is larger than Config.MaxWrite and would never be taken.
	ErrTooLarge = errors.New("myriad: write larger than Config.MaxWrite: split it")
	// ErrTooMany says that Config.MaxConns connections are open, so that Dial or Adopt cannot have
	// one more.
	ErrTooMany = errors.New("myriad: Config.MaxConns connections are open: try again when some have closed, or " +
		"raise it")
	// ErrBusy says that a loop's mailbox is full, or for Adopt that of every loop.
	ErrBusy = errors.New("myriad: the loop's mailbox is full: try again later")
	// ErrClosed is what a call on something that has been closed or shut down returns. It is
	// net.ErrClosed.
	ErrClosed = net.ErrClosed
	// ErrOnLoop says that a call would block a loop. See Stream for the blocking view of a conn.
	ErrOnLoop = errors.New("myriad: this would block the loop: use a Handler, or Stream for the blocking view")
	// ErrUnsupported says that the platform, the driver or the kind of connection cannot do what
	// was asked.
	ErrUnsupported = driver.ErrUnsupported
	// ErrSlow is the reason with which a Close that the peer does not read to its end is aborted.
	ErrSlow = errors.New("myriad: the peer did not take the last bytes in time")
)

// errShutDown is ErrClosed where that alone would not say what has been closed.
var errShutDown error = shutDown{}

type shutDown struct{}

func (shutDown) Error() string        { return "the engine has been shut down: start another one" }
func (shutDown) Is(target error) bool { return target == ErrClosed }
