//go:build !linux

package main

import "errors"

var errNotLinux = errors.New("this needs Linux")

func stopProcesses([]int) (func() error, error) { return nil, errNotLinux }

func keepToOneProcessor([]int) error { return errNotLinux }
