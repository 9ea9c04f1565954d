//go:build !linux

package main

import (
	"context"
	"errors"
	"io"
)

func upgradeProcess(context.Context, int, io.Writer) error {
	return errors.New("--pid needs Linux: use --handover")
}
