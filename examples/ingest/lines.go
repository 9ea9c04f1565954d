package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// lineFile is a file of whole lines. One goroutine at a time may use it.
type lineFile struct {
	f    *os.File
	size int64 // of what is written completely
}

// openLines opens the file to append to it. Half a line, which a crash may have left, is ended
// first.
func openLines(name string) (*lineFile, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	l := &lineFile{f, size}
	if err == nil && size > 0 {
		last := make([]byte, 1)
		if _, err = f.ReadAt(last, size-1); err == nil && last[0] != '\n' {
			err = l.append([]byte{'\n'})
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return l, nil
}

// append writes all of the lines or none: what a full disk has cut off is taken back, so that
// trying again doubles nothing.
func (l *lineFile) append(lines []byte) error {
	if _, err := l.f.WriteAt(lines, l.size); err != nil {
		return errors.Join(fmt.Errorf("ingest: append %d bytes: %w", len(lines), err), l.f.Truncate(l.size))
	}
	l.size += int64(len(lines))
	return nil
}

// close returns when the lines are on the disk.
func (l *lineFile) close() error { return errors.Join(l.f.Sync(), l.f.Close()) }
