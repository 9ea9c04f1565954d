package std

import (
	"os"

	"golang.org/x/sys/windows"
)

// lend duplicates a listener's descriptor.
func lend(nl netListener) (*os.File, error) { return nl.File() }

// reopen opens the file again by its handle, which gives it an offset of its own; a duplicate would
// share the user's, which package os moves with every read.
func reopen(f *os.File) (*File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var own windows.Handle
	var failed error
	if err := raw.Control(func(handle uintptr) { own, failed = reopenHandle(handle) }); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, os.NewSyscallError("ReOpenFile", failed)
	}
	return &File{os.NewFile(uintptr(own), f.Name()), true}, nil
}

func reopenHandle(handle uintptr) (windows.Handle, error) {
	proc := windows.NewLazySystemDLL("kernel32.dll").NewProc("ReOpenFile")
	if err := proc.Find(); err != nil {
		return 0, err
	}
	const share = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE
	own, _, err := proc.Call(handle, windows.GENERIC_READ, share, 0)
	if windows.Handle(own) == windows.InvalidHandle {
		return 0, err
	}
	return windows.Handle(own), nil
}
