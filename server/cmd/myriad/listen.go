package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/myriad-go/myriad/web"
)

// open makes h serve the address. It calls failed at most once: if serving ends with an error other
// than the one after h's shutdown.
func (s settings) open(a *address, h *web.Server, certificates *keeper, failed func(error)) (net.Addr, error) {
	secure := certificates != nil && !a.isUnix()
	if secure {
		h.TLSConfig = certificates.config()
	}
	switch {
	case a.socket != nil:
		go func() {
			serve := h.Serve
			if secure {
				serve = func(l net.Listener) error { return h.ServeTLS(l, "", "") }
			}
			if err := serve(a.socket); !errors.Is(err, http.ErrServerClosed) {
				failed(fmt.Errorf("%s %s: %w", a.option, a.text, cause(err)))
			}
		}()
		return a.socket.Addr(), nil
	case a.kind == unixAddress:
		return s.openUnix(a, h)
	}
	ln, err := listenTCP(h, a.target, secure)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w%s", a.option, a.text, cause(err), remedy(err))
	}
	return ln.Addr(), nil
}

func listenTCP(h *web.Server, hostPort string, secure bool) (*web.Listener, error) {
	if secure {
		return h.ListenTLS("tcp", hostPort, "", "")
	}
	return h.Listen("tcp", hostPort)
}

// openUnix creates the socket with the permissions of --socket-mode. The socket never has more than
// those.
func (s settings) openUnix(a *address, h *web.Server) (addr net.Addr, err error) {
	if s.predecessor == nil { // else that one listens
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
