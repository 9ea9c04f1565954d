//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package natsbus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// A folderLock keeps other processes from a folder of JetStream, which would take what this one
// writes for its own. The kernel lets go of it when the process ends, however that is.
type folderLock struct{ file *os.File }

// lockFolder makes the folder, and locks it. It fails at once if another process has it.
func lockFolder(dir string) (*folderLock, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("the folder %s: %w", dir, err), f.Close())
	}
	return &folderLock{f}, nil
}

var errFolderInUse = errors.New("another process uses it")

func lockFile(f *os.File) (err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	wrong := raw.Control(func(fd uintptr) { err = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB) })
	if wrong != nil {
		return wrong
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errFolderInUse
	}
	return err
}

// release unlocks the folder. To close the file is not enough: a child that is being started has
// it, too, until it runs its program.
func (l *folderLock) release() {
	if raw, err := l.file.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = syscall.Flock(int(fd), syscall.LOCK_UN) })
	}
	_ = l.file.Close()
}
