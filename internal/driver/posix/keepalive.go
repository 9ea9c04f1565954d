//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package posix

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
)

// probeOptions are a system's numbers of the options of probes; 0: it has no such option.
type probeOptions struct{ idle, interval, count int }

// longestIdle is what Linux takes at most, in seconds.
const longestIdle = 32767

// setKeepAlive has the kernel probe the peer of a TCP socket after so much silence: see
// driver.Options.KeepAlive. What fails leaves the kernel's own times.
func setKeepAlive(fd int, silence time.Duration) {
	if silence <= 0 {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0)
		return
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	idle := int(min((silence-1)/time.Second+1, longestIdle))
	for _, o := range [...]struct{ name, value int }{
		{keepAliveOptions.idle, idle},
		{keepAliveOptions.interval, int(driver.ProbeInterval / time.Second)},
		{keepAliveOptions.count, driver.Probes},
	} {
		if o.name != 0 {
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, o.name, o.value)
		}
	}
}
