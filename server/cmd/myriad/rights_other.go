//go:build !unix

package main

import (
	"errors"
	"net"
	"os"
)

func writeWith(nc *net.UnixConn, p []byte, file *os.File) error {
	if file != nil {
		return errors.ErrUnsupported
	}
	_, err := nc.Write(p)
	return err
}

// A rightsReader reads from nc: this system passes no descriptors.
type rightsReader struct{ nc *net.UnixConn }

// Read implements io.Reader.
func (r *rightsReader) Read(p []byte) (int, error) { return r.nc.Read(p) }

func (r *rightsReader) take() *os.File { return nil }

func (r *rightsReader) close() error { return nil }
