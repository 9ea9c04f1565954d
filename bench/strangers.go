package main

import (
	"errors"
	"time"

	"github.com/myriad-go/myriad/bench/proc"
)

// spoiled is what strangers may use of one core before a turn's figures are doubted.
const spoiled = 0.10

// A watch finds out what the machine did besides the bench's own work. Its own is that of this
// process and of all its descendants, among them the servers that clients start for themselves.
type watch struct {
	began time.Time
	busy  time.Duration
	ours  time.Duration
}

func newWatch() (*watch, error) {
	w := &watch{began: time.Now()}
	var err error
	w.busy, w.ours, err = readMachine()
	return w, err
}

func readMachine() (busy, ours time.Duration, err error) {
	busy, err1 := proc.Busy()
	ours, err2 := proc.Family()
	return busy, ours, errors.Join(err1, err2)
}

// strangers is what others used since then, in cores. The kernel counts the machine's work in ticks
// and that of processes exactly, so a little less than nothing is nothing.
func (w *watch) strangers() (float64, error) {
	busy, ours, err := readMachine()
	return max(0, (busy-w.busy-(ours-w.ours)).Seconds()/time.Since(w.began).Seconds()), err
}
