//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// writeWith writes p, and passes the descriptor of file with it, unless that is nil.
func writeWith(nc *net.UnixConn, p []byte, file *os.File) error {
	if file == nil {
		_, err := nc.Write(p)
		return err
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) {
		var n int
		if n, _, sent = nc.WriteMsgUnix(p, syscall.UnixRights(int(fd)), nil); sent == nil {
			_, sent = nc.Write(p[n:])
		}
	}); err != nil {
		return err
	}
	return sent
}

// A rightsReader reads from nc, and keeps the descriptors that come.
type rightsReader struct {
	nc    *net.UnixConn
	files []*os.File
}

// maxPassed is how many descriptors a message may bring. Further ones are lost.
const maxPassed = 4

// Read implements io.Reader. An end is io.EOF.
func (r *rightsReader) Read(p []byte) (int, error) {
	control := make([]byte, syscall.CmsgSpace(4*maxPassed))
	n, size, _, _, err := r.nc.ReadMsgUnix(p, control)
	if err != nil {
		return n, err
	}
	messages, err := syscall.ParseSocketControlMessage(control[:size])
	for i := range messages {
		fds, failed := syscall.ParseUnixRights(&messages[i])
		err = errors.Join(err, failed)
		for _, fd := range fds {
			r.files = append(r.files, os.NewFile(uintptr(fd), fmt.Sprint("passed ", fd)))
		}
	}
	if err == nil && n == 0 && len(p) > 0 {
		err = io.EOF
	}
	return n, err
}

// take returns the first descriptor that has come, or nil, and closes the others.
func (r *rightsReader) take() (first *os.File) {
	if len(r.files) > 0 {
		first, r.files = r.files[0], r.files[1:]
	}
	_ = r.close()
	return first
}

func (r *rightsReader) close() (err error) {
	for _, f := range r.files {
		err = errors.Join(err, f.Close())
	}
	r.files = nil
	return err
}
