package main

import (
	"errors"
	"os"
	"time"

	"github.com/myriad-go/myriad/bench/proc"
)

// spoiled is what strangers may use of one core before a turn's figures are doubted.
const spoiled = 0.10

// A watch finds out what the machine did besides the bench's own work.
type watch struct {
	pids  []int
	began time.Time
	busy  time.Duration
	ours  time.Duration
}

func newWatch(children ...*child) (*watch, error) {
	w := &watch{pids: []int{os.Getpid()}, began: time.Now()}
	for _, c := range children {
		w.pids = append(w.pids, c.pid())
	}
	var err error
	w.busy, w.ours, err = w.read()
	return w, err
}

// add is for a child that was started under the watch: all it has used is ours.
func (w *watch) add(c *child) { w.pids = append(w.pids, c.pid()) }

func (w *watch) read() (busy, ours time.Duration, err error) {
	busy, err = proc.Busy()
	for _, pid := range w.pids {
		used, err1 := proc.CPU(pid)
		ours += used.Total
		err = errors.Join(err, err1)
	}
	return busy, ours, err
}

// strangers is what others used since then, in cores. The kernel counts the machine's work in ticks
// and that of processes exactly, so a little less than nothing is nothing.
func (w *watch) strangers() (float64, error) {
	busy, ours, err := w.read()
	return max(0, (busy-w.busy-(ours-w.ours)).Seconds()/time.Since(w.began).Seconds()), err
}
