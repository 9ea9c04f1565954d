package load

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// control has the kernel choose the port of a connection from a given source when it connects and
// not before: then it needs to be free for this server only.
func control(_, _ string, c syscall.RawConn) error {
	var set error
	if err := c.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	}); err != nil {
		return err
	}
	return set
}

// sleepUntil sleeps more exactly than time.Sleep does, which may be a millisecond late.
func sleepUntil(at time.Time) {
	for d := time.Until(at); d > 0; d = time.Until(at) {
		t := unix.NsecToTimespec(int64(d))
		_ = unix.Nanosleep(&t, nil) // interrupted: it goes on
	}
}

// readUsage reads what this process and its machine have used so far. A process can use a processor
// for each of its loops, as far as GOMAXPROCS allows.
func readUsage(loops int) usage {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return usage{}
	}
	host, _ := os.Hostname() // without it, all workers count as of one host
	return usage{CPU: time.Duration(u.Utime.Nano() + u.Stime.Nano()), Usable: min(loops, runtime.GOMAXPROCS(0)),
		Host: host, Processors: runtime.NumCPU(), Busy: machineBusy()}
}

// userTick is the unit of times in /proc/stat.
const userTick = 10 * time.Millisecond

// machineBusy is the CPU time of everything on the machine since it was started; 0: not known.
func machineBusy() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	return parseBusy(text)
}

// parseBusy parses the first line of proc_stat(5): user, nice, system, idle, iowait, irq, softirq,
// steal. What follows is contained in user and nice.
func parseBusy(text []byte) (busy time.Duration) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 9 || string(fields[0]) != "cpu" {
		return 0
	}
	for i, field := range fields[1:9] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0
		}
		if i != 3 && i != 4 { // idle, iowait
			busy += time.Duration(n) * userTick
		}
	}
	return busy
}

// reservedFiles are descriptors that connections of a process cannot have.
const reservedFiles = 64

// connectionLimit is for how many connections this process has descriptors.
func connectionLimit() int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return mostConnections
	}
	return int(max(1, min(files.Cur, mostConnections+reservedFiles)-reservedFiles))
}
