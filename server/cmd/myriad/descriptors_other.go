//go:build !unix

package main

import (
	"errors"
	"os"
)

func passedFile(int, string) (*os.File, error) { return nil, errors.ErrUnsupported }

func closePassed(int) error { return errors.ErrUnsupported }

func keepDescriptors() {}
