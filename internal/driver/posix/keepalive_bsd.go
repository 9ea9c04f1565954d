//go:build freebsd || netbsd

package posix

import "golang.org/x/sys/unix"

var keepAlive = [...]keepAliveOption{{unix.TCP_KEEPIDLE, 15}, {unix.TCP_KEEPINTVL, 15}, {unix.TCP_KEEPCNT, 9}}
