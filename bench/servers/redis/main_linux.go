// Command redis becomes redis-server, with the way to start and to end of a server under test.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	flag.String("app", "resp", "what to serve")
	listen := flag.String("listen", "127.0.0.1:0", "where")
	announce := flag.String("announce", "", "say when this address accepts connections, and end")
	flag.Parse()
	var err error
	if *announce != "" {
		err = wait(*announce)
	} else {
		err = become(*listen)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// become does not return, unless it fails. redis-server dies with its parent; another process waits
// until it accepts connections.
func become(addr string) error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	bound := ln.Addr().(*net.TCPAddr)
	if err := ln.Close(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "--announce", bound.String())
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	quiet, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if err := unix.Dup3(int(quiet.Fd()), 1, 0); err != nil {
		return err
	}
	return syscall.Exec(path, []string{path, "--bind", bound.IP.String(), "--port", strconv.Itoa(bound.Port), "--save",
		"",
		"--appendonly", "no", "--loglevel", "warning", "--maxclients", "20000", "--protected-mode", "no"}, os.Environ())
}

// wait reports on the standard output that addr accepts connections.
func wait(addr string) error {
	for range 1000 {
		if c, err := net.Dial("tcp", addr); err == nil {
			fmt.Println("listening", addr)
			return c.Close()
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("%s does not accept connections", addr)
}
