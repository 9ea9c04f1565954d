//go:build freebsd || netbsd || openbsd || dragonfly

package posix

import "golang.org/x/sys/unix"

// These systems make sockets that do not block and are not inherited by other programs, in one
// call.
const streamType = unix.SOCK_STREAM | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC

func newStream(family int) (int, error) { return unix.Socket(family, streamType, 0) }

func newStreams() ([2]int, error) { return unix.Socketpair(unix.AF_UNIX, streamType, 0) }

// noSignals has nothing to do: the runtime takes the signal of a write to a peer that has gone.
func noSignals(int) {}

// replace makes the number of one descriptor another one's.
func replace(fd, by int) { _ = unix.Dup3(by, fd, unix.O_CLOEXEC) }
