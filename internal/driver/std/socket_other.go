//go:build !unix && !windows

package std

import (
	"net"
	"syscall"

	"github.com/myriad-go/myriad/buf"
)

// canWatch: nothing is known of a socket but what a read returns.
const canWatch = false

// watch and sendNow are not called.
func watch(syscall.RawConn) error               { return nil }
func sendNow(syscall.RawConn, *buf.Chain) error { return nil }

// peerGone is not known either.
func peerGone(error) bool { return false }

func renewed(nc net.Conn) (net.Conn, error) { return nc, nil }
