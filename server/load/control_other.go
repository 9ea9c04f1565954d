//go:build !linux

package load

import (
	"syscall"
	"time"
)

func control(string, string, syscall.RawConn) error { return nil }

func sleepUntil(at time.Time) { time.Sleep(time.Until(at)) }

// readUsage reads nothing here.
func readUsage(int) usage { return usage{} }

// connectionLimit is not known here: a connection without a descriptor fails.
func connectionLimit() int { return mostConnections }
