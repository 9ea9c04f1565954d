//go:build unix

package handover

import (
	"os"
	"os/signal"
	"syscall"
)

// Notify has each SIGUSR2 sent to c, as signal.Notify does: the signal by which operators ask for
// an upgrade. On systems without it nothing is sent. signal.Stop ends it.
func Notify(c chan<- os.Signal) { signal.Notify(c, syscall.SIGUSR2) }
