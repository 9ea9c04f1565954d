package myriad

import (
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// Config holds an Engine's settings. The zero value works.
type Config struct {
	// Loops is the number of event loops, at most 255. 0: half of GOMAXPROCS, at least one; the
	// other half is for handlers that run elsewhere and for the kernel (docs/adr/0011). Where most
	// handlers run on the loops, as quick ones do under package web, GOMAXPROCS uses the whole
	// machine.
	Loops int
	// Driver forces what moves the bytes: "epoll" or "uring" (Linux), "kqueue" (macOS and the
	// BSDs), "std" (package net, everywhere). Empty: the best one that is proven on the platform.
	// Start fails with ErrUnsupported where it does not exist. "uring" is io_uring. It needs Linux
	// 6.1; if the kernel refuses it, "epoll" serves in its place, and the log says why. Its loops
	// are bound to their threads (Loop.ThreadBound), so no loop changes hands while a handler
	// blocks. DispatchAuto therefore runs every handler on the pool. A handler that sleeps under
	// DispatchInline holds up all connections of its loop for as long.
	Driver string
	// Logger gets what no caller can be told: failing accepts, panicking handlers. Nil:
	// slog.Default().
	Logger *slog.Logger

	// ReadBuffer is the size in bytes of the one read buffer of a loop, and so the most that one
	// Received is given. 0: 64 KiB, at most 64 MiB.
	ReadBuffer int
	// WriteLimit is the high mark of a conn's output queue in bytes, at most 1 GiB. A Write that
	// would pass it fails with ErrFull, unless the queue is empty. Conn.SetWriteLimit changes it
	// for one conn. 0: 256 KiB. On Linux the kernel takes 64 KiB that it cannot send yet besides
	// (TCP_NOTSENT_LOWAT).
	WriteLimit int
	// MaxWrite is the largest single Write, in bytes, at most 1 GiB. 0: 16 MiB.
	MaxWrite int
	// Mailbox is how many functions may wait in one loop for Loop.Do. 0: 4096.
	Mailbox int
	// LingerTimeout bounds how long a closing conn may take to flush 4 KiB, and then how long it
	// waits for a peer that still sends to end its side. For a peer that sends nothing, or more
	// than LingerBytes, it waits half a second. 0: 5 s.
	LingerTimeout time.Duration
	// MaxConns is how many connections may be open at a time: accepted, adopted, dialled. At the
	// limit the engine stops accepting: peers wait in the kernel's backlog, and one for each
	// listener in the engine. It goes on by itself when others have closed. Dial and Adopt fail
	// with ErrTooMany. 0: what the process's limit on descriptors (RLIMIT_NOFILE) allows when the
	// engine starts, less an eighth, at most 64, for everything else. Without such a limit, or with
	// a System of its own: none. More than that is taken, with a warning in the log: accepting
	// fails, and goes on by itself, before so many are open.
	MaxConns int
	// AcceptRate is how many connections are accepted in a second, over all listeners; up to 50 ms
	// worth of them may come at once. Others wait as they do for MaxConns. 0: no limit. None is
	// needed for the engine itself: while its loops are late, it takes few newcomers
	// (docs/adr/0033). A limit protects what each new client asks of others, such as a database.
	AcceptRate int
	// KeepAlive is after what silence of a TCP peer the kernel probes it. It does so every 15 s,
	// and closes the connection after nine probes without an answer. 0: 15 s, as in package net.
	// Negative: never. Adopted connections stay as they are. A probe costs both ends as much as a
	// small message. If the protocol has pings of its own, KeepAlive should be above their
	// interval, so that none is sent. If some 100,000 connections over one machine's loopback are
	// silent, Linux drops most of their probes, and in the end closes them.
	KeepAlive time.Duration
	// DialTimeout bounds how long Dial connects, after names have been resolved, whatever its
	// context says. 0: 30 s.
	DialTimeout time.Duration
	// LingerBytes is how much input a closing conn discards, so that no reset destroys its last
	// answer. More is left unread until the conn closes. 0: 256 KiB.
	LingerBytes int

	// System replaces the operating system. It is for the simulations of this module and otherwise
	// nil.
	System driver.System
}

const maxReadBuffer = 64 << 20

func (c Config) withDefaults() (Config, error) {
	if c.Loops < 0 || c.Loops > 255 {
		return c, fmt.Errorf("myriad: Config.Loops is %d: it must be 0 (half of GOMAXPROCS) to 255", c.Loops)
	}
	setDefault(&c.Loops, min(max(1, runtime.GOMAXPROCS(0)/2), 255))
	setDefault(&c.ReadBuffer, 64<<10)
	setDefault(&c.WriteLimit, 256<<10)
	setDefault(&c.MaxWrite, 16<<20)
	setDefault(&c.Mailbox, 4096)
	setDefault(&c.LingerTimeout, 5*time.Second)
	setDefault(&c.LingerBytes, 256<<10)
	setDefault(&c.DialTimeout, 30*time.Second)
	setDefault(&c.KeepAlive, driver.ProbeInterval)
	for _, f := range []struct {
		name  string
		value int64 // an int has no room for a Duration on 32 bits
	}{
		{"ReadBuffer", int64(c.ReadBuffer)}, {"WriteLimit", int64(c.WriteLimit)}, {"MaxWrite", int64(c.MaxWrite)},
		{"Mailbox", int64(c.Mailbox)}, {"LingerTimeout", int64(c.LingerTimeout)}, {"LingerBytes", int64(c.LingerBytes)},
		{"MaxConns", int64(c.MaxConns)}, {"AcceptRate", int64(c.AcceptRate)}, {"DialTimeout", int64(c.DialTimeout)},
	} {
		if f.value < 0 {
			return c, fmt.Errorf("myriad: Config.%s is %d: it must not be negative", f.name, f.value)
		}
	}
	if c.ReadBuffer > maxReadBuffer {
		return c, fmt.Errorf("myriad: Config.ReadBuffer is %d: each loop has one, of %d bytes at most", c.ReadBuffer,
			maxReadBuffer)
	}
	c.MaxWrite = min(c.MaxWrite, maxWriteLimit)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.limitConns()
	if c.System == nil {
		s, err := systemFor(c.Driver, c.Logger)
		if err != nil {
			return c, err
		}
		c.System = s
	}
	return c, nil
}

// limitConns sets the default of MaxConns, and warns if it is more than the descriptors are enough
// for.
func (c *Config) limitConns() {
	most, files := math.MaxInt, uint64(0)
	if c.System == nil {
		if n, ok := driver.FileLimit(); ok {
			most, files = connsWithin(n), n
		}
	}
	setDefault(&c.MaxConns, most)
	if c.MaxConns > most {
		c.Logger.Warn("myriad: Config.MaxConns is more than the limit on descriptors allows: raise that (ulimit -n, "+
			"LimitNOFILE) or lower it",
			"MaxConns", c.MaxConns, "descriptors", files, "enough_for", most)
	}
}

// filesForOthers is how many descriptors MaxConns leaves to the rest of the process at most.
const filesForOthers = 64

// connsWithin is the default of MaxConns for a limit on descriptors.
func connsWithin(files uint64) int {
	return int(max(1, min(files-min(files/8, filesForOthers), math.MaxInt)))
}

func setDefault[T ~int | ~int64](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// maxWriteLimit bounds WriteLimit, SetWriteLimit and MaxWrite.
const maxWriteLimit = 1 << 30
