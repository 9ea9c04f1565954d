package myriad

import (
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// Config holds an Engine's settings. The zero value works.
type Config struct {
	// Loops is the number of event loops, at most 255. 0: GOMAXPROCS.
	Loops int
	// Driver names what moves the bytes: "epoll". Empty: the best one of the platform.
	Driver string
	// Logger hears what no caller can be told: failing accepts, panicking handlers. Nil: slog.Default().
	Logger *slog.Logger

	// ReadBuffer is the size in bytes of the one read buffer of a loop, and so the most that one Received is given.
	// 0: 64 KiB.
	ReadBuffer int
	// WriteLimit is the high mark of a conn's output queue in bytes: a Write that would pass it fails with ErrFull, unless
	// the queue is empty. Conn.SetWriteLimit changes it for one conn. 0: 256 KiB.
	WriteLimit int
	// MaxWrite is the largest single Write, in bytes. 0: 16 MiB.
	MaxWrite int
	// Mailbox is how many functions may wait in one loop for Loop.Do. 0: 4096.
	Mailbox int
	// LingerTimeout bounds how long a closing conn may take to flush 4 KiB, and then for the peer to end its side.
	// 0: 5 s.
	LingerTimeout time.Duration
	// LingerBytes is how much input a closing conn discards so that its last answer is not lost to a reset. 0: 256 KiB.
	LingerBytes int

	// System replaces the operating system. It is for the simulations of this module and otherwise nil.
	System driver.System
}

func (c Config) withDefaults() (Config, error) {
	if c.Loops < 0 || c.Loops > 255 {
		return c, fmt.Errorf("myriad: Config.Loops is %d: it must be 0 (GOMAXPROCS) to 255", c.Loops)
	}
	setDefault(&c.Loops, min(runtime.GOMAXPROCS(0), 255))
	setDefault(&c.ReadBuffer, 64<<10)
	setDefault(&c.WriteLimit, 256<<10)
	setDefault(&c.MaxWrite, 16<<20)
	setDefault(&c.Mailbox, 4096)
	setDefault(&c.LingerTimeout, 5*time.Second)
	setDefault(&c.LingerBytes, 256<<10)
	for _, f := range []struct {
		name  string
		value int
	}{
		{"ReadBuffer", c.ReadBuffer}, {"WriteLimit", c.WriteLimit}, {"MaxWrite", c.MaxWrite},
		{"Mailbox", c.Mailbox}, {"LingerTimeout", int(c.LingerTimeout)}, {"LingerBytes", c.LingerBytes},
	} {
		if f.value < 0 {
			return c, fmt.Errorf("myriad: Config.%s is %d: it must not be negative", f.name, f.value)
		}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.System == nil {
		s, err := systemFor(c.Driver)
		if err != nil {
			return c, err
		}
		c.System = s
	}
	return c, nil
}

func setDefault[T ~int | ~int64](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}
