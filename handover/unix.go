//go:build unix

package handover

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/myriad-go/myriad/internal/driver"
)

// This file is the channel between two processes: a unix socket. A message is a header of seven
// bytes, with which its descriptors go (SCM_RIGHTS), and a body.

const headerSize = 7

// maxDescriptors is how many a message has at most.
const maxDescriptors = maxRecords

// fullPause is how long a sender waits when the kernel has too many descriptors of its user on
// their way (ETOOMANYREFS): they count until the other process has received them.
const fullPause = time.Millisecond

// A unixChannel is one end of it.
type unixChannel struct {
	nc    *net.UnixConn
	moves *driver.Moves
	sys   driver.System
	by    time.Time
}

func newChannel(nc *net.UnixConn, sys driver.System) (channel, error) {
	moves := sys.Facilities().Moves
	if moves == nil || moves.Lend == nil {
		return nil, fmt.Errorf("handover: %w: the driver %s has no descriptors to send", driver.ErrUnsupported,
			sys.Name())
	}
	return &unixChannel{nc: nc, moves: moves, sys: sys}, nil
}

func (c *unixChannel) send(m message) error {
	return c.lend(m.sockets, nil, func(fds []int) error {
		if m.listener == nil {
			return c.write(&m, fds)
		}
		f, err := m.listener.File()
		if err != nil {
			return err
		}
		defer f.Close()
		raw, err := f.SyscallConn()
		if err != nil {
			return err
		}
		var sent error
		if err = raw.Control(func(fd uintptr) { sent = c.write(&m, append(fds, int(fd))) }); err != nil {
			return err
		}
		return sent
	})
}

// lend calls f with the descriptors of all sockets, each of which is open until f returns.
func (c *unixChannel) lend(sockets []driver.Socket, fds []int, f func(fds []int) error) error {
	if len(sockets) == 0 {
		return f(fds)
	}
	var sent error
	if err := c.moves.Lend(sockets[0], func(fd uintptr) {
		sent = c.lend(sockets[1:], append(fds, int(fd)), f)
	}); err != nil {
		return err
	}
	return sent
}

func (c *unixChannel) write(m *message, fds []int) error {
	header := binary.BigEndian.AppendUint32(nil, uint32(len(m.body)))
	header = binary.BigEndian.AppendUint16(append(header, byte(m.kind)), uint16(len(fds)))
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	n, err := c.writeHeader(header, rights)
	if err == nil && n < len(header) {
		_, err = c.nc.Write(header[n:])
	}
	if err == nil && len(m.body) > 0 {
		_, err = c.nc.Write(m.body)
	}
	return err
}

func (c *unixChannel) writeHeader(header, rights []byte) (int, error) {
	for {
		n, _, err := c.nc.WriteMsgUnix(header, rights, nil)
		if !errors.Is(err, unix.ETOOMANYREFS) {
			return n, err
		}
		if !c.sys.Now().Before(c.by) {
			return n, fmt.Errorf("%w: %w: raise the limit on descriptors (ulimit -n)", os.ErrDeadlineExceeded, err)
		}
		c.sys.NewParker().ParkFor(fullPause)
	}
}

func (c *unixChannel) receive() (m message, err error) {
	defer func() {
		if err != nil {
			m.drop()
			m = message{}
		}
	}()
	var header [headerSize]byte
	room := make([]byte, unix.CmsgSpace(4*(maxDescriptors+1)))
	n, rights, flags, _, err := c.nc.ReadMsgUnix(header[:], room)
	fds, bad := descriptors(room[:rights])
	for i, fd := range fds {
		if err == nil && header[4] == byte(listener) && i == 0 {
			if failed := c.receiveListener(&m, fd); failed != nil {
				bad = errors.Join(bad, failed)
			}
			continue
		}
		s, failed := c.moves.Receive(uintptr(fd))
		if failed != nil {
			bad = errors.Join(bad, failed)
			continue
		}
		m.sockets = append(m.sockets, s)
	}
	switch {
	case errors.Is(err, io.EOF):
		return m, io.EOF
	case err != nil:
		return m, err
	case n == 0:
		return m, io.EOF
	case bad != nil:
		return m, bad
	case flags&unix.MSG_CTRUNC != 0:
		return m, fmt.Errorf("%w: descriptors of a message are lost: raise the limit on descriptors (ulimit -n)",
			unix.EMFILE)
	}
	if _, err = io.ReadFull(c.nc, header[n:]); err != nil {
		return m, cutOff(err)
	}
	m.kind = kind(header[4])
	size, count := binary.BigEndian.Uint32(header[:]), int(binary.BigEndian.Uint16(header[5:]))
	if size > m.kind.maxBody() || count != len(fds) {
		return m, fmt.Errorf("%w: %v of %d bytes with %d of %d descriptors", ErrProtocol, m.kind, size, len(fds), count)
	}
	var body bytes.Buffer // grows with what comes, whatever the header says
	body.Grow(int(min(size, 2*statePiece)) + bytes.MinRead)
	if _, err = io.CopyN(&body, c.nc, int64(size)); err != nil {
		return m, cutOff(err)
	}
	m.body = body.Bytes()
	return m, nil
}

// receiveListener makes the listener of a message of its descriptor, which it takes.
func (c *unixChannel) receiveListener(m *message, fd int) (err error) {
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	m.listener, err = c.moves.Listener(f)
	return err
}

// cutOff is an error in the middle of a message. A deadline there is not one before a message:
// what comes next could not be understood.
func cutOff(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: the rest of a message does not come", ErrProtocol)
	}
	return noEOF(err)
}

// descriptors are those of a message's ancillary data.
func descriptors(p []byte) (fds []int, err error) {
	all, err := unix.ParseSocketControlMessage(p)
	if err != nil {
		return nil, err
	}
	for i := range all {
		some, failed := unix.ParseUnixRights(&all[i])
		fds, err = append(fds, some...), errors.Join(err, failed)
	}
	return fds, err
}

func (c *unixChannel) stopReceiving() { _ = c.nc.CloseRead() }

func (c *unixChannel) otherEnded() bool { return peerEnded(c.nc) }

func (c *unixChannel) setDeadline(t time.Time) {
	c.by = t
	_ = c.nc.SetDeadline(t)
}

func (c *unixChannel) close() { _ = c.nc.Close() }
