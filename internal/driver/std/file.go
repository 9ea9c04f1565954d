package std

import (
	"io"
	"net"
	"os"

	"github.com/myriad-go/myriad/buf"
)

// A File is a second handle of a user's file.
type File struct {
	*os.File
	ownOffset bool // it shares no file offset with the user's, so that package net may use the kernel's sendfile
}

const fileBuffer = 64 << 10 // where the kernel cannot copy

// sendTo writes n bytes from off on, fewer if the file ends before.
func (f *File) sendTo(nc net.Conn, off, n int64) (int64, error) {
	to, ok := nc.(*net.TCPConn)
	if !ok || !f.ownOffset {
		return f.copyTo(nc, io.NewSectionReader(f.File, off, n))
	}
	if _, err := f.Seek(off, io.SeekStart); err != nil {
		return 0, err
	}
	return to.ReadFrom(&io.LimitedReader{R: f.File, N: n})
}

func (f *File) copyTo(nc net.Conn, from io.Reader) (total int64, err error) {
	block := buf.Get(fileBuffer)
	defer block.Release()
	for p := block.Extend(); ; {
		n, err := from.Read(p)
		if n > 0 {
			written, err := nc.Write(p[:n])
			total += int64(written)
			if err != nil {
				return total, err
			}
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

func duplicate(f *os.File) (*File, error) {
	file, err := reopen(f)
	if err != nil {
		return nil, &os.PathError{Op: "duplicate", Path: f.Name(), Err: err}
	}
	return file, nil
}
