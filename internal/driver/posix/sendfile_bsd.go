//go:build darwin || freebsd || dragonfly

package posix

import "golang.org/x/sys/unix"

// sendFile is sendfile(2), or a copy where the file or the socket is not of a kind that it serves.
// It returns what was sent also with an error.
func sendFile(to, from int, off int64, n int) (int, error) {
	sent, err := unix.Sendfile(to, from, &off, n)
	switch {
	case err == nil || err == unix.EAGAIN || err == unix.EINTR:
		return max(sent, 0), err
	case err == unix.EINVAL || err == unix.ENOTSUP || err == unix.EOPNOTSUPP || err == unix.ENOTSOCK:
		return copyFile(to, from, off, n)
	}
	return 0, err // the count means nothing then
}
