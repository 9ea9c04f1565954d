//go:build !unix

package main

// withUmask runs f. This system has no umask.
func withUmask(_ int, f func() error) error { return f() }
