package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// An order is what a worker is told: a line of JSON. The first is its part; the others follow when
// the updates allow it.
type order struct {
	Part  *part   `json:",omitempty"` // open the connections
	Start *window `json:",omitempty"` // begin to send
	Stop  bool    `json:",omitempty"` // send nothing that is due from now on, and wait for replies
	Last  []int64 `json:",omitempty"` // wait for these publications, one number for each channel, and end
	End   bool    `json:",omitempty"` // end
}

// A window is when a run begins.
type window struct {
	Send  time.Time // the first request is due
	Count time.Time // the warm-up is over
}

// An update is what a worker says: a line of JSON, each part.Every and after each order.
type update struct {
	Sample *Sample // since the last update
	Open   int     // connections
	Ready  bool    // all of them are open
	Paused bool    // nothing is under way after Stop
	// Counted is how long the part of the run was that counts; 0 before Stop. It ends when the
	// worker obeys, so that no later request counts, however long the order was on its way.
	Counted time.Duration `json:",omitempty"`
	// Absent is how many subscribers of each channel were not there when the run began, in the
	// first update after Start; nil: all were.
	Absent []int `json:",omitempty"`
	Short  int   `json:",omitempty"` // connections beyond the limit on descriptors, which are not opened
	// Began and Ended are what the process and its machine had used when the part of the run that
	// counts began and ended. They come with Counted.
	Began, Ended usage
	Last         []int64 `json:",omitempty"` // the number of each channel's last publication, once paused
	Done         bool    // this is the last update
	Err          string  `json:",omitempty"`
}

// Workers say what they have counted each updateEvery, or less often if there are many: then the
// one that adds up takes an update each updateApart.
const (
	updateEvery = 200 * time.Millisecond
	updateApart = 20 * time.Millisecond
)

// Workers look each beatEvery how late their timers are, or less often if there are many.
const (
	beatEvery = 20 * time.Millisecond
	beatApart = 5 * time.Millisecond
)

// unwatchedEvery is how often a worker says what it has counted if the run is not watched and
// nothing else has changed. To encode histograms takes milliseconds.
const unwatchedEvery = time.Second

// Work is the life of a worker: it takes orders from in and writes updates to out until in ends. It
// is what a process of Options.Workers, or of another host, calls. If in ends before the run has,
// Work fails.
func Work(in io.Reader, out io.Writer) error {
	decoder := json.NewDecoder(in)
	var first order
	if err := decoder.Decode(&first); err != nil {
		return fmt.Errorf("no plan: %w", err)
	}
	if first.Part == nil {
		return errors.New("the first order has no plan")
	}
	encoder := json.NewEncoder(out)
	w, err := newWorker(first.Part)
	if err != nil {
		return encoder.Encode(update{Sample: newSample(), Done: true, Err: err.Error()})
	}
	defer w.close()
	w.openAll()
	w.watchTimers()
	s := &shift{worker: w}
	orders := make(chan order)
	go func() {
		defer close(orders)
		for {
			var o order
			if err := decoder.Decode(&o); err != nil {
				return
			}
			select {
			case orders <- o:
			case <-w.ctx.Done():
				return
			}
		}
	}()
	if err := s.run(orders, encoder); err != nil {
		return err
	}
	// The connections stay until the orders end. To close them now would take the server's time
	// from deliveries to the subscribers of workers that still wait.
	for range orders {
	}
	return nil
}

// A shift is a worker at work. All of it belongs to the goroutine of Work, but for began.
type shift struct {
	worker  *worker
	from    time.Time             // what comes then and later counts
	counted time.Duration         // of updates
	began   atomic.Pointer[usage] // at from
	over    usage                 // when it stopped
	stopped bool
	paused  bool      // nothing is under way any more
	patient time.Time // until then what is under way, or has not come, is waited for
	last    []int64   // of the order Last
	absent  []int     // to be said in the next update
	storm   time.Time // the next one
	ended   bool
	said    update    // the last update
	saidAt  time.Time // when it was sent
}

func (s *shift) run(orders <-chan order, out *json.Encoder) error {
	ticks := time.NewTicker(max(s.worker.plan.Every, updateEvery))
	defer ticks.Stop()
	for {
		select {
		case o, open := <-orders:
			if !open {
				return errors.New("the orders ended before the run did")
			}
			s.obey(o)
		case now := <-ticks.C:
			s.look(now)
			if !s.hasNews(now) {
				continue
			}
		}
		u := s.update()
		s.said, s.saidAt = u, time.Now()
		if err := out.Encode(u); err != nil || u.Done {
			return err
		}
	}
}

// hasNews reports whether an update is due.
func (s *shift) hasNews(now time.Time) bool {
	w := s.worker
	return w.plan.Watched || s.paused != s.said.Paused || s.ended || w.open() != s.said.Open ||
		now.Sub(s.saidAt) >= unwatchedEvery
}

// obey carries out an order.
func (s *shift) obey(o order) {
	w := s.worker
	switch {
	case o.Start != nil:
		s.from = o.Start.Count
		s.absent = w.start(o.Start.Send, s.from)
		w.tasks.Go(s.begin)
		if w.plan.Storm > 0 {
			s.storm = o.Start.Count.Add(w.plan.Storm)
		}
	case o.Stop:
		s.stopped, s.storm = true, time.Time{}
		end := stop(w.lanes)
		s.counted = end.Sub(s.from)
		s.over = readUsage(w.plan.Loops)
		s.patient = end.Add(w.plan.Timeout)
	case o.Last != nil:
		s.last = o.Last
		s.patient = time.Now().Add(w.plan.Timeout)
	case o.End:
		s.ended = true
	}
}

// begin notes what is used when the part of the run that counts begins.
func (s *shift) begin() {
	select {
	case <-time.After(time.Until(s.from)):
		u := readUsage(s.worker.plan.Loops)
		s.began.Store(&u)
	case <-s.worker.ctx.Done():
	}
}

// look does what is done before each update.
func (s *shift) look(now time.Time) {
	w := s.worker
	for _, l := range w.lanes {
		l.expire(now)
	}
	if !s.storm.IsZero() && now.After(s.storm) {
		w.audience.storm()
		s.storm = now.Add(w.plan.Storm)
	}
	late := now.After(s.patient)
	if s.stopped && !s.paused && (late || w.underWay() == 0) {
		s.paused = true
		for _, l := range w.lanes {
			l.overdue()
		}
	}
	if s.last != nil && w.audience.end(s.last, !late) {
		s.ended = true
	}
}

// update is what there is to say now.
func (s *shift) update() update {
	w := s.worker
	u := update{Sample: w.lanes[0].collect(), Open: w.open(), Short: w.wanted() - w.places,
		Paused: s.paused, Counted: s.counted, Done: s.ended, Absent: s.absent}
	s.absent = nil
	if began := s.began.Load(); began != nil && s.stopped {
		u.Began, u.Ended = *began, s.over
	}
	for _, l := range w.lanes[1:] {
		u.Sample.add(l.collect())
	}
	if w.audience != nil {
		u.Sample.Push = w.audience.collect()
	}
	u.Sample.compact()
	u.Ready = u.Open >= w.places
	if s.paused && w.plan.Publishes {
		for i := range w.last {
			u.Last = append(u.Last, w.last[i].Load())
		}
	}
	return u
}
