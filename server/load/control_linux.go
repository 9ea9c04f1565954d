package load

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// control has the kernel choose the port of a connection from a given source when it connects and
// not before: then it needs to be free for this server only.
func control(_, _ string, c syscall.RawConn) error {
	var set error
	if err := c.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	}); err != nil {
		return err
	}
	return set
}

// sleepUntil sleeps more exactly than time.Sleep does, which may be a millisecond late.
func sleepUntil(at time.Time) {
	for d := time.Until(at); d > 0; d = time.Until(at) {
		t := unix.NsecToTimespec(int64(d))
		_ = unix.Nanosleep(&t, nil) // interrupted: it goes on
	}
}

// cpuTime is how much processor time this process has used.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
