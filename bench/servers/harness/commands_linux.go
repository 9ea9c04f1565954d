package harness

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Commands is a Work of a client of redis-server, which runs beside it. echo sends a command and
// returns its reply. Goroutines call it, each one after the other; with Watch every reply is
// compared.
func Commands(open func(socket string) (echo func(text string) (string, error), err error)) Work {
	socket, failed := startRedis()
	var echo func(text string) (string, error)
	if failed == nil {
		echo, failed = open(socket)
	}
	return func(o Order) (Report, error) {
		if failed != nil {
			return Report{}, failed
		}
		var done atomic.Int64
		var all sync.WaitGroup
		for i, n := 0, max(o.Producers, 1); i < n; i++ {
			all.Go(func() {
				for j := range o.Times*(i+1)/n - o.Times*i/n {
					text := "value"
					if o.Watch {
						text = strconv.Itoa(i) + "-" + strconv.Itoa(j)
					}
					if got, err := echo(text); err == nil && got == text {
						done.Add(1)
					}
				}
			})
		}
		all.Wait()
		return Report{Done: int(done.Load())}, nil
	}
}

// startRedis runs a redis-server that ends with this process.
func startRedis() (socket string, err error) {
	dir, err := os.MkdirTemp("", "redis")
	if err != nil {
		return "", err
	}
	socket = filepath.Join(dir, "s")
	cmd := exec.Command("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no",
		"--dir",
		dir, "--loglevel", "warning")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	for range 1000 {
		if c, err := net.Dial("unix", socket); err == nil {
			return socket, c.Close()
		}
		time.Sleep(5 * time.Millisecond)
	}
	return "", fmt.Errorf("redis-server does not listen on %s", socket)
}
