//go:build !linux

package load

import (
	"syscall"
	"time"
)

func control(string, string, syscall.RawConn) error { return nil }

func sleepUntil(at time.Time) { time.Sleep(time.Until(at)) }

// cpuTime is not known here.
func cpuTime() time.Duration { return 0 }
