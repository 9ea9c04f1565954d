package load

import (
	"errors"
	"math"
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/myriad-go/myriad/bench/proc"
)

// A window is the stretch of a run that counts. The run passes it the time whenever it reads the
// clock. So the server's usage is read at the same moments between which replies are counted.
type window struct {
	server     func() (proc.Times, error)
	start, end int64
	mark       int64 // the next moment at which something is to be read: start, end, or never
	opened     int64 // when it was read really
	closed     int64

	replies    int64
	unanswered int64
	latency    *hdrhistogram.Histogram
	late       *hdrhistogram.Histogram // of Open
	deliveries *hdrhistogram.Histogram // of a Broadcast

	serverUsed, driverUsed proc.Times // at the first reading, then what came on top of it
	err                    error
}

func newWindow(server func() (proc.Times, error), o Order) (*window, error) {
	if o.Mode != Exchange && o.End <= o.Start {
		return nil, errors.New("the window ends before it starts")
	}
	return &window{server: server, start: o.Start, end: o.End, mark: o.Start, latency: NewLatency(),
		late: NewLatency(), deliveries: NewLatency()}, nil
}

// tell takes the readings when they are due. It reports whether the window is still to end.
func (w *window) tell(now int64) bool {
	if now >= w.mark {
		w.read(now)
	}
	return w.closed == 0
}

func (w *window) read(now int64) {
	server, err1 := w.server()
	driver, err2 := proc.CPU(os.Getpid())
	w.err = errors.Join(w.err, err1, err2)
	if w.opened == 0 {
		w.opened, w.mark = now, w.end
		w.serverUsed, w.driverUsed = server, driver
		return
	}
	w.closed, w.mark = now, math.MaxInt64
	w.serverUsed, w.driverUsed = server.Sub(w.serverUsed), driver.Sub(w.driverUsed)
}

// running reports whether what happens now counts.
func (w *window) running() bool { return w.opened != 0 && w.closed == 0 }

func (w *window) took(latency int64) {
	_ = w.latency.RecordValue(min(max(latency, 1), int64(longestLatency))) // in range, so it cannot fail
}

// left notes how late a request left although a connection was free.
func (w *window) left(late int64) {
	_ = w.late.RecordValue(min(max(late, 1), int64(longestLatency)))
}

func (w *window) delivered(latency int64) {
	_ = w.deliveries.RecordValue(min(max(latency, 1), int64(longestLatency)))
}

func (w *window) result() Result {
	latency, err1 := w.latency.EncodeV2()
	deliveries, err2 := w.deliveries.EncodeV2()
	late, err3 := w.late.EncodeV2()
	if err := errors.Join(w.err, err1, err2, err3); err != nil {
		return Result{Err: err.Error()}
	}
	return Result{
		Replies: w.replies, Elapsed: time.Duration(w.closed - w.opened), Server: w.serverUsed,
		Driver:     w.driverUsed.Total,
		Unanswered: w.unanswered, Latency: latency, Deliveries: deliveries, Late: late,
	}
}
