//go:build race

package uring

import (
	"os"
	"syscall"
)

// order tells the race detector that what was done before a send happened before what follows a
// receive, also between our sockets and those of package net. The calls of package syscall tell it
// so of themselves; it knows nothing of io_uring. Without it, programs that are ordered by a
// request and its answer would be reported.
type order struct{ null *os.File }

func (o *order) open() (err error) {
	o.null, err = os.Open(os.DevNull)
	return err
}

func (o *order) close() {
	if o.null != nil {
		_ = o.null.Close()
	}
}

// release is a write that fails, and counts as one.
func (o *order) release() { _, _ = syscall.Write(-1, nil) }

// acquire is a read of nothing.
func (o *order) acquire() {
	var p [1]byte
	_, _ = syscall.Read(int(o.null.Fd()), p[:])
}
