//go:build unix

package main

import "syscall"

// withUmask runs f with the process's umask set to mask. The umask affects the whole process, so
// use it only at the start, before other goroutines create files.
func withUmask(mask int, f func() error) error {
	defer syscall.Umask(syscall.Umask(mask))
	return f()
}
