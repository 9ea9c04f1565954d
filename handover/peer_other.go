//go:build !linux

package handover

import (
	"errors"
	"net"
)

// ErrPeer says that the other process is of another user.
var ErrPeer = errors.New("the other process belongs to another user")

// checkPeer leaves it to the mode of the path, which is 0600.
func checkPeer(*net.UnixConn) error { return nil }

// peerEnded is not known here.
func peerEnded(*net.UnixConn) bool { return false }
