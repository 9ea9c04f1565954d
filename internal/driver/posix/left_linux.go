package posix

import "golang.org/x/sys/unix"

// HasLeft implements driver.Leaver.
func (s *Socket) HasLeft() bool {
	if s.fd < 0 {
		return false
	}
	look := [1]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(look[:], 0)
	return err == nil && n > 0 && look[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}
