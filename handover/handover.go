package handover

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
)

// This file is how the two processes meet: the old one starts the new one, or the new one finds the
// old one by a path.

// Give hands the connections, listeners and states of p to the process at the other end of nc. It
// returns when that process goes on with them. If it fails, everything goes on here, and the error
// says why; then it may be called again. Beside another Give of the engine, or after one that has
// succeeded, it fails with myriad.ErrBusy. That process has to be of the same user, or of root. Not
// from a loop.
//
// Given.MoveRest moves connections that come to rest later, and closes nc. Then the program shuts
// its servers and its engine down, which ends all other connections.
func Give(nc *net.UnixConn, p *Program) (*Given, error) {
	ch, err := open(nc, p)
	if err != nil {
		return nil, err
	}
	return give(ch, p)
}

// Take receives from the process at the other end of nc, which it closes in the end, all that it
// gives. Nothing of it runs yet. The program prepares what it needs, listens, and calls Taken.GoOn,
// or Taken.Drop. Engine.Listen and what is above it accept from the listeners of the old process,
// if they ask for the same addresses before GoOn. Not from a loop.
func Take(nc *net.UnixConn, p *Program) (*Taken, error) {
	ch, err := open(nc, p)
	if err != nil {
		return nil, err
	}
	return take(ch, p)
}

func open(nc *net.UnixConn, p *Program) (channel, error) {
	if err := p.check(); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	if err := checkPeer(nc); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	ch, err := newChannel(nc, p.Engine.System())
	if err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	return ch, nil
}

// Listen lets new processes find this one by the path of a unix socket, in place of what is there.
// Only this user may connect (mode 0600, and Give looks at the peer's credentials). Each connection
// is for one Give; accept the next one only after that.
func Listen(path string) (*net.UnixListener, error) {
	// The mode is right before the path leads to it.
	hidden := path + "." + strconv.Itoa(os.Getpid())
	if err := os.Remove(hidden); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("handover: listen on %s: %w", path, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("handover: listen on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false) // the path may lead to another process by then
	if err = errors.Join(os.Chmod(hidden, 0o600), os.Rename(hidden, path)); err != nil {
		return nil, errors.Join(fmt.Errorf("handover: listen on %s: %w", path, err), os.Remove(hidden), l.Close())
	}
	return l, nil
}

// Dial finds the old process by its path. If there is none, the error is os.ErrNotExist or
// ECONNREFUSED: then the program starts afresh.
func Dial(path string) (*net.UnixConn, error) {
	nc, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	return nc, nil
}

// inheritedEnv names the environment variable by which Start tells its child the number of a
// descriptor.
const inheritedEnv = "MYRIAD_HANDOVER_FD"

// Start starts cmd, which finds this process by Inherited, and returns the connection for Give. The
// caller waits for cmd, and ends it if Give fails.
func Start(cmd *exec.Cmd) (*net.UnixConn, error) {
	mine, its, err := pair()
	if err != nil {
		return nil, fmt.Errorf("handover: start %s: %w", cmd.Path, err)
	}
	defer its.Close()
	cmd.ExtraFiles = append(cmd.ExtraFiles, its)
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, inheritedEnv+"="+strconv.Itoa(2+len(cmd.ExtraFiles)))
	if err = cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("handover: start %s: %w", cmd.Path, err), mine.Close())
	}
	return mine, nil
}

// Inherited is the connection to the process that has started this one by Start; nil if none has.
// It is given once.
func Inherited() (*net.UnixConn, error) {
	s := os.Getenv(inheritedEnv)
	if s == "" {
		return nil, nil
	}
	if err := os.Unsetenv(inheritedEnv); err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	fd, err := strconv.Atoi(s)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("handover: %s is %q: it must be the number of a descriptor", inheritedEnv, s)
	}
	f := os.NewFile(uintptr(fd), "handover")
	defer f.Close() // FileConn has a duplicate of its own, which no child gets
	nc, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("handover: descriptor %d: %w", fd, err)
	}
	uc, ok := nc.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("handover: descriptor %d is a %T", fd, nc), nc.Close())
	}
	return uc, nil
}
