package crowd

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Main is a process of clients.
func Main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		os.Exit(1)
	}
}

// serve is the life of a process. It says why it gives up also in its last Report.
func serve(in io.Reader, out io.Writer) error {
	decoder := json.NewDecoder(in)
	var s Spec
	if err := decoder.Decode(&s); err != nil {
		return fmt.Errorf("no spec: %w", err)
	}
	if err := raiseFiles(); err != nil {
		return err
	}
	g, err := newGroup(s)
	if err != nil {
		return err
	}
	defer g.close()
	orders := make(chan Order)
	go func() {
		defer close(orders)
		for {
			var o Order
			if decoder.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	every := cmp.Or(s.Every, time.Second)
	runtime.LockOSThread() // no other goroutine takes its turn with the thread
	answers := json.NewEncoder(out)
	for reported := g.began; ; {
		select {
		case o, more := <-orders:
			if !more {
				return nil
			}
			g.obey(o)
		default:
		}
		err := g.step()
		if now := time.Now(); err != nil || now.Sub(reported) >= every {
			reported = now
			g.expire()
			one := g.report()
			one.CPU = ownTime()
			if err != nil {
				one.Err = err.Error()
			}
			if err := errors.Join(err, answers.Encode(one)); err != nil {
				return err
			}
		}
	}
}

// raiseFiles sets the limit of open files to the most that this process may have.
func raiseFiles() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	return nil
}

// ownTime is the CPU time of this process.
func ownTime() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
