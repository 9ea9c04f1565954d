//go:build freebsd || netbsd

package posix

import "golang.org/x/sys/unix"

var keepAliveOptions = probeOptions{unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT}
