// Package kqueue is the driver for macOS and the BSDs: one kqueue for each loop. All but that is
// package posix.
//
// It has been compiled and vetted for darwin, freebsd, netbsd, openbsd and dragonfly, and reviewed
// line by line against the contract (REVIEW.md), but it has NOT YET RUN on any of them. What has
// run, on Linux, is package posix, and this package's poller over an emulation of kevent
// (emulation_linux_test.go). On one of these systems, run
//
//	go test -race ./internal/driver/kqueue
//
// before you rely on it. Until then it is used only if Config.Driver names it.
package kqueue
