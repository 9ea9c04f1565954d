//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package posix

import (
	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/buf"
)

const copyRoom = 64 << 10 // bytes read from a file to be sent by one copyFile

// copyFile sends one piece of a file by way of a buffer. What the socket does not take is read
// again the next time.
func copyFile(to, from int, off int64, n int) (int, error) {
	block := buf.Get(copyRoom)
	defer block.Release()
	p := block.Extend()
	got, err := unix.Pread(from, p[:min(n, len(p))], off)
	if err != nil || got == 0 {
		return 0, err
	}
	sent, errno := rawWrite(to, p[:got])
	if errno != 0 {
		return 0, errno
	}
	return sent, nil
}
