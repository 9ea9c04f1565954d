//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package natsbus

import (
	"errors"
	"syscall"
	"testing"
)

// A folder is free when its lock is released, although a child that is being started has the file.
func TestLockIsNotKeptByChildren(t *testing.T) {
	dir := t.TempDir()
	l, err := lockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockFolder(dir); !errors.Is(err, errFolderInUse) {
		t.Errorf("locked twice: %v", err)
	}
	child, err := syscall.Dup(int(l.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(child)
	l.release()
	again, err := lockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	again.release()
}
