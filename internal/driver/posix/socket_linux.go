package posix

import "golang.org/x/sys/unix"

const streamType = unix.SOCK_STREAM | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC

func newStream(family int) (int, error) { return unix.Socket(family, streamType, 0) }

func newStreams() ([2]int, error) { return unix.Socketpair(unix.AF_UNIX, streamType, 0) }

// unsentInKernel is how many bytes the kernel takes that it cannot send yet. Without such a limit
// it copies a megabyte or more for a peer that does not read: time that others wait, and memory
// beside all limits, which the kernel lacks for them. Peers that read are served with less work,
// because what is copied is still in the processor's cache when it is sent: of 16 to 256 KiB this
// was the best.
const unsentInKernel = 64 << 10

// setTCPOptions gives a socket the values that the net package gives its own, and unsentInKernel.
// Accepted sockets inherit them. What fails is an optimisation: the kernel's default serves.
func setTCPOptions(fd int) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	limitUnsent(fd)
}

// optionsAreInherited says that accepted sockets have what was set for their listener.
const optionsAreInherited = true

// keepAliveOptions are the numbers of the probes' options.
var keepAliveOptions = probeOptions{unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT}

func limitUnsent(fd int) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentInKernel)
}

// stopListening takes the socket out of the listening state.
func stopListening(fd int) { _ = unix.Shutdown(fd, unix.SHUT_RDWR) }

// sendFile is sendfile(2): it returns what was sent also with an error.
func sendFile(to, from int, off int64, n int) (int, error) {
	sent, err := unix.Sendfile(to, from, &off, n)
	return max(sent, 0), err
}
