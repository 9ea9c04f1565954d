package load

import "time"

// A usage is what a worker and its machine have used since they began.
type usage struct {
	CPU    time.Duration // of the process
	Usable int           // processors that it can use; 0: nothing is known

	Host       string
	Processors int           // of the machine
	Busy       time.Duration // CPU time of everything on the machine; 0: not known
}

// Own is what the load itself has used of its machines while it counted. With the server on the
// same machine, a busy machine is a limit of both.
type Own struct {
	// Busiest is the part, from 0 to 1, of the processors that a worker can use which the busiest
	// one has used.
	Busiest float64
	// Machine is the part of the processors of the workers' busiest machine that were in use, by
	// anything. Share is the part that the workers on it have used. Both are 0 if nothing is known.
	Machine, Share float64
	// Short is how many connections were not opened, for want of descriptors.
	Short int
}

// ownOf compares what workers had used at the beginning and at the end.
func ownOf(before, after []usage, elapsed time.Duration) (o Own) {
	if elapsed <= 0 {
		return o
	}
	shares := map[string]float64{}
	for i, end := range after {
		if end.Usable == 0 {
			continue
		}
		used := (end.CPU - before[i].CPU).Seconds() / elapsed.Seconds()
		o.Busiest = max(o.Busiest, used/float64(end.Usable))
		shares[end.Host] += used / float64(end.Processors)
	}
	for i, end := range after {
		if end.Busy == 0 || before[i].Busy == 0 {
			continue
		}
		machine := (end.Busy - before[i].Busy).Seconds() / elapsed.Seconds() / float64(end.Processors)
		if machine = min(machine, 1); machine >= o.Machine {
			o.Machine, o.Share = machine, max(o.Share, min(shares[end.Host], 1))
		}
	}
	return o
}

// watchTimers notes how late timers of this process fire, until the run ends.
func (w *worker) watchTimers() {
	w.tasks.Go(func() {
		timer := time.NewTimer(w.plan.Beat)
		defer timer.Stop()
		for due := time.Now().Add(w.plan.Beat); ; {
			select {
			case <-timer.C:
			case <-w.ctx.Done():
				return
			}
			now := time.Now()
			w.lanes[0].fired(due, now)
			due = now.Add(w.plan.Beat)
			timer.Reset(w.plan.Beat)
		}
	})
}
