package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// An address is the value of --listen or --admin-listen:
//
//	HOST:PORT   a TCP port
//	unix:PATH   a unix socket, which the server makes and removes
//	fd:N        a listening socket that is inherited as descriptor N, 3 or higher
//	fd:NAME     the one that systemd passes by that name (sd_listen_fds(3), FileDescriptorName=)
type address struct {
	option string // "--listen" or "--admin-listen"
	text   string // as the user wrote it
	kind   addressKind
	target string // host:port, path, number or name

	// These are of an inherited address.
	socket *os.File // what this process has inherited; nil: nothing
	absent error    // why socket is nil
	addr   net.Addr // nil: not known yet
}

type addressKind uint8

const (
	tcpAddress addressKind = iota
	unixAddress
	inheritedAddress
)

// maxUnixPath is the longest path that every system accepts. macOS has the least: 104 bytes with
// the final zero.
const maxUnixPath = 103

func parseAddress(option, text string) (*address, error) {
	a := &address{option: option, text: text, target: text}
	if path, is := strings.CutPrefix(text, "unix:"); is {
		a.kind, a.target = unixAddress, path
		return a, a.checkPath()
	}
	if name, is := strings.CutPrefix(text, "fd:"); is {
		a.kind, a.target = inheritedAddress, name
		if n, err := strconv.Atoi(name); name == "" || err == nil && n < 3 {
			return a, a.wrong("write a descriptor from 3 on, as in fd:3, or the name that systemd passes, as in " +
				"fd:public")
		}
		return a, nil
	}
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return a, fmt.Errorf("%s %q: %w: write HOST:PORT, as in 127.0.0.1:8000, unix:PATH or fd:NAME", option, text,
			err)
	}
	return a, nil
}

func (a *address) checkPath() error {
	switch {
	case a.target == "":
		return a.wrong("write the path of the socket, as in unix:/run/myriad/public.sock")
	case a.target[0] == '@':
		return a.wrong("abstract sockets have no permissions: write a path")
	case len(a.target) > maxUnixPath:
		return a.wrong(fmt.Sprintf("the path has %d bytes; a socket's path may have %d", len(a.target), maxUnixPath))
	}
	return nil
}

func (a *address) wrong(what string) error { return fmt.Errorf("%s %q: %s", a.option, a.text, what) }

// isExposed reports whether other machines can reach the address. For an inherited socket it is
// false until inherit or open has been called.
func (a *address) isExposed() bool {
	switch {
	case a.kind == unixAddress || a.kind == inheritedAddress && a.addr == nil:
		return false
	case a.kind == tcpAddress:
		host, _, _ := net.SplitHostPort(a.target) // parseAddress has checked it
		return !isLoopback(host)
	}
	tcp, is := a.addr.(*net.TCPAddr)
	return is && !tcp.IP.IsLoopback()
}

// isUnix reports whether the address is a unix socket, which has no TLS.
func (a *address) isUnix() bool {
	return a.kind == unixAddress || a.addr != nil && a.addr.Network() == "unix"
}

// inherit opens the socket of an inherited address. For other addresses it does nothing.
func (a *address) inherit(environ func(string) string) error {
	if a.kind != inheritedAddress {
		return nil
	}
	n, err := strconv.Atoi(a.target)
	if err != nil {
		if n, err = passedDescriptor(a.target, os.Getpid(), environ); err != nil {
			return a.wrong(err.Error())
		}
	}
	file, err := passedFile(n, a.text)
	if err == nil {
		a.addr, err = addrOf(file)
	}
	if err != nil {
		return fmt.Errorf("%s %q: %w: descriptor %d must be a listening TCP or unix socket", a.option, a.text,
			cause(err), n)
	}
	a.socket = file
	return closePassed(n) // file is a duplicate
}

// addrOf returns the address of a listening socket. If it fails, file is closed.
func addrOf(file *os.File) (net.Addr, error) {
	ln, err := net.FileListener(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	addr := ln.Addr()
	if network := addr.Network(); network != "tcp" && network != "unix" {
		err = errors.New("the socket has the type " + network)
	}
	if err = errors.Join(err, ln.Close()); err != nil { // a duplicate, too
		err = errors.Join(err, file.Close())
	}
	return addr, err
}

// firstPassed is the first descriptor that systemd passes (SD_LISTEN_FDS_START).
const firstPassed = 3

// passedDescriptor returns the descriptor that systemd has passed to the process by that name
// (sd_listen_fds_with_names(3)).
func passedDescriptor(name string, pid int, environ func(string) string) (int, error) {
	count, _ := strconv.Atoi(environ("LISTEN_FDS"))
	if environ("LISTEN_PID") != strconv.Itoa(pid) || count <= 0 {
		return 0, errors.New("systemd has passed no socket to this process: start it by its socket unit")
	}
	names := strings.Split(environ("LISTEN_FDNAMES"), ":")
	found := 0
	for i, one := range names[:min(len(names), count)] {
		switch {
		case one != name:
		case found != 0:
			return 0, errors.New("systemd has passed several sockets of that name: give each a socket unit with a " +
				"FileDescriptorName of its own")
		default:
			found = firstPassed + i
		}
	}
	if found == 0 {
		return 0, fmt.Errorf("systemd has passed no socket of that name, but %s: set FileDescriptorName in the "+
			"socket unit", strings.Join(names, ", "))
	}
	return found, nil
}
