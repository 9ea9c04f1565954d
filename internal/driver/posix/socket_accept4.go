//go:build freebsd || dragonfly

package posix

import "golang.org/x/sys/unix"

func acceptStream(fd int) (int, unix.Sockaddr, error) {
	return unix.Accept4(fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
}
