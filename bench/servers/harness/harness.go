// Package harness is the common part of the servers under test: how they start, how they report
// their address, and which commands they accept besides the measured path. docs/BENCHMARKS.md
// describes the same contract for servers from elsewhere.
//
// A server is started as
//
//	PROGRAM --app APP --listen 127.0.0.1:0 [its own flags]
//
// and writes one line to its standard output, "listening ADDRESS control", once connections are
// accepted; the last word is there if it understands commands. It ends when its standard input
// ends, so that it never outlives its parent process. Commands come as lines on the standard input,
// each is answered by one line:
//
//	goroutines   the number of them
//	pid          that of the process
//	gc           "done", after a collection whose memory has been given back to the system
//	work {...}   of a Work: what it has done
package harness

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Answer is the body of the answer to every request for Path, and after Delay to every request for
// SlowPath. A request for Path may be slow too, if its query says so: it sleeps or computes for
// Delay.
const (
	Answer      = "Hello, World!"
	Path        = "/plaintext"
	ContentType = "text/plain; charset=utf-8"
	SlowPath    = "/slow"
	SleepQuery  = "sleep"
	BurnQuery   = "burn"
	Delay       = 5 * time.Millisecond
)

// What Exposed serves besides. LargeAnswer is bytes.
const (
	LargePath   = "/large"
	UploadPath  = "/upload"
	LargeAnswer = 1 << 20
)

// A Start listens on addr, serves in the background and returns the bound address.
type Start func(addr string) (net.Addr, error)

// Main runs a server that has these apps. It returns when the standard input has ended, or does not
// return.
func Main(apps map[string]Start) { MainWith(apps, nil) }

// MainWith is Main for a program that can also do work.
func MainWith(apps map[string]Start, works map[string]Work) {
	app := flag.String("app", "", "what to serve")
	listen := flag.String("listen", "127.0.0.1:0", "where")
	flag.Parse()
	if err := run(apps, works, *app, *listen, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(apps map[string]Start, works map[string]Work, app, listen string, in io.Reader, out io.Writer) error {
	start, serves := apps[app]
	work, does := works[app]
	bound := "none"
	switch {
	case serves:
		addr, err := start(listen)
		if err != nil {
			return fmt.Errorf("%s on %s: %w", app, listen, err)
		}
		bound = addr.String()
	case !does:
		return fmt.Errorf("there is no app %q in this server: it has %s", app, names(apps, works))
	}
	if _, err := fmt.Fprintln(out, "listening", bound, "control"); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if _, err := fmt.Fprintln(out, command(lines.Text(), work)); err != nil {
			return err
		}
	}
	return nil
}

func command(line string, work Work) string {
	if order, ok := strings.CutPrefix(line, "work "); ok && work != nil {
		return work.command(order)
	}
	switch line {
	case "goroutines":
		return fmt.Sprint(runtime.NumGoroutine())
	case "pid":
		return fmt.Sprint(os.Getpid())
	case "gc":
		runtime.GC() // twice, because what a sync.Pool holds survives the first
		debug.FreeOSMemory()
		return "done"
	}
	return fmt.Sprintf("unknown command %q", line)
}

func names(apps map[string]Start, works map[string]Work) string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(apps)), maps.Keys(works))
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// Listen starts a server that takes a net.Listener. serve runs on its own goroutine; if it returns,
// the process ends.
func Listen(addr string, serve func(net.Listener) error) (net.Addr, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	go func() { Ended(serve(ln)) }()
	return ln.Addr(), nil
}

// Ended ends the process: a server that no longer serves must not be measured.
func Ended(err error) {
	fmt.Fprintln(os.Stderr, "the server ended:", err)
	os.Exit(1)
}
