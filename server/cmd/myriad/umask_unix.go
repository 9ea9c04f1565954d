//go:build unix

package main

import "syscall"

// withUmask runs f while files that the process makes get none of the permissions in mask. The mask
// is the process's, so it is for the start, when no other goroutine makes files.
func withUmask(mask int, f func() error) error {
	defer syscall.Umask(syscall.Umask(mask))
	return f()
}
