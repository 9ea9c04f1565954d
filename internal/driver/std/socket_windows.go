package std

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/windows"

	"github.com/myriad-go/myriad/buf"
)

// canWatch: a read of no bytes waits until there is something to read, or tells of a reset.
const canWatch = true

// watch waits for a reset, or returns nil when there is something to read.
func watch(raw syscall.RawConn) error {
	waited := false
	return raw.Read(func(uintptr) bool {
		done := waited
		waited = true
		return done
	})
}

// sendNow sends nothing: all output here is overlapped, and completes later.
func sendNow(syscall.RawConn, *buf.Chain) error { return nil }

// peerGone tells a reset from other reasons why nothing can be sent.
func peerGone(err error) bool {
	return errors.Is(err, windows.WSAECONNRESET) || errors.Is(err, windows.WSAECONNABORTED) ||
		errors.Is(err, windows.WSAESHUTDOWN)
}

// renewed is nc itself: a socket that belongs to a completion port cannot move to another conn.
func renewed(nc net.Conn) (net.Conn, error) { return nc, nil }
