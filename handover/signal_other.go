//go:build !unix

package handover

import "os"

// Notify has each SIGUSR2 sent to c, as signal.Notify does: the signal by which operators ask for
// an upgrade. On systems without it nothing is sent. signal.Stop ends it.
func Notify(chan<- os.Signal) {}
