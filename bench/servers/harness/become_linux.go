package harness

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Become is the main function of a server that is another project's program, with the way to start
// and to end of a server under test. The program has to be installed. arguments are those for an
// app, host and port.
func Become(program string, arguments func(app, host string, port int) ([]string, error)) {
	app := flag.String("app", "", "what to serve")
	listen := flag.String("listen", "127.0.0.1:0", "where")
	announce := flag.String("announce", "", "say when this address accepts connections, and end")
	flag.Parse()
	var err error
	if *announce != "" {
		err = wait(*announce)
	} else {
		err = become(program, *listen, func(host string, port int) ([]string, error) {
			return arguments(*app, host, port)
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// become does not return, unless it fails. The program dies with its parent; another process waits
// until it accepts connections.
func become(program, addr string, arguments func(host string, port int) ([]string, error)) error {
	path, err := exec.LookPath(program)
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
	args, err := arguments(bound.IP.String(), bound.Port)
	if err != nil {
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
	return syscall.Exec(path, append([]string{path}, args...), os.Environ())
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
