package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web"
)

// open makes h serve the address.
func (s settings) open(a *address, h *web.Server, certificates *keeper) (net.Addr, error) {
	if certificates != nil && !a.isUnix() {
		h.TLSConfig = certificates.config()
	}
	switch a.kind {
	case inheritedAddress:
		return openInherited(a, h, certificates != nil)
	case unixAddress:
		return s.openUnix(a, h)
	}
	ln, err := listenOn(h, "tcp", a.target, certificates != nil)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w%s", a.option, a.text, cause(err), remedy(err))
	}
	return ln.Addr(), nil
}

// openInherited serves a socket that another process has made: the one that the predecessor has
// under the same name, or else what this process has inherited. It moves to a successor like the
// server's own, by the name. The service manager has a duplicate and lends it for the next start,
// so the server never ends the address.
func openInherited(a *address, h *web.Server, secure bool) (net.Addr, error) {
	var network string
	switch e := h.Engine; {
	case e.Inherits("tcp", a.text):
		network = "tcp"
	case e.Inherits("unix", a.text):
		network = "unix"
	case a.socket == nil:
		return nil, a.absent
	default:
		network = a.addr.Network()
		if err := inheritFile(e, network, a.text, a.socket); err != nil {
			return nil, fmt.Errorf("%s %q: %w", a.option, a.text, err)
		}
	}
	if a.socket != nil {
		_ = a.socket.Close() // the engine has a duplicate, or the predecessor's
		a.socket = nil
	}
	ln, err := listenOn(h, network, a.text, secure && network == "tcp")
	if err == nil {
		a.addr, err = ln.Addr(), share(h.Engine, a.text)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", a.option, a.text, cause(err))
	}
	return a.addr, nil
}

// inheritFile keeps a duplicate of the socket for the Listen that asks for the name.
func inheritFile(e *myriad.Engine, network, name string, file *os.File) error {
	sockets := e.Sockets()
	if sockets == nil || sockets.Listener == nil {
		return fmt.Errorf("the driver cannot take sockets over: %w", myriad.ErrUnsupported)
	}
	twin, err := sockets.Listener(file)
	if err == nil {
		e.Inherit(network, name, false, twin)
	}
	return err
}

// share tells the engine that another process has a duplicate of the listener, for good.
func share(e *myriad.Engine, name string) error {
	for _, ln := range e.Listeners() {
		if _, asked := ln.Asked(); asked == name {
			f, err := ln.File()
			if err == nil {
				err = f.Close() // another one counts for it
			}
			return err
		}
	}
	return nil
}

func listenOn(h *web.Server, network, addr string, secure bool) (*web.Listener, error) {
	if secure {
		return h.ListenTLS(network, addr, "", "")
	}
	return h.Listen(network, addr)
}

// openUnix creates the socket with the permissions of --socket-mode. The socket never has more than
// those.
func (s settings) openUnix(a *address, h *web.Server) (addr net.Addr, err error) {
	if !h.Engine.Inherits("unix", a.target) {
		if err := removeStale(a.target); err != nil {
			return nil, a.wrong(err.Error())
		}
	}
	err = withUmask(0o177, func() error {
		ln, err := h.Listen("unix", a.target)
		if err != nil {
			return fmt.Errorf("%s %s: %w%s", a.option, a.text, cause(err), remedy(err))
		}
		addr = ln.Addr()
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(a.target, fs.FileMode(s.socketMode)); err != nil {
		return nil, fmt.Errorf("%s %s: --socket-mode: %w", a.option, a.text, err)
	}
	return addr, nil
}

// removeStale removes the socket of a process that was killed. It returns an error if a process
// accepts on the socket, or if the file is no socket.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return errors.New("the file exists and is no socket: remove it, or choose another path")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(errors.New("another process listens on it: stop it, or choose another path"), nc.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	}
	return fmt.Errorf("the socket exists, and the server cannot tell whether it is in use: %w", cause(err))
}

// A fileMode is the permissions of a file, as chmod reads them.
type fileMode uint32

func parseFileMode(text string) (fileMode, error) {
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil || n > 0o777 {
		return 0, errors.New("write permissions as chmod reads them, as in 0660")
	}
	return fileMode(n), nil
}
