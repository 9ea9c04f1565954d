package load

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// mostReasons is how many different errors are told apart; further ones count as "other".
const mostReasons = 64

// neverSent is the failure of a request of the open loop for which all connections were busy until
// the end.
const neverSent = "never sent: no connection was free"

// notAccepted is the failure of a publication that was made again until the end (Plan.Retry).
const notAccepted = "not accepted in time"

// A Sample is what has been counted since the sample before it.
type Sample struct {
	Requests int64 // replies or, for Push, accepted publications
	Bytes    int64 // received
	Failed   map[string]int64
	Opened   int64 // connections
	Lost     int64 // connections that ended without our doing
	Latency  *Histogram
	// Service is the time from when a request was sent until its reply. It has the requests of the
	// open loop (Plan.Rate) whose reply came while the run counted, and was no refusal. So their
	// number is what the server has done in that time, however late it was asked.
	Service *Histogram
	// Late is how long after it was due a request left although a connection was free: the fault of
	// this side, not of the server.
	Late *Histogram
	// Timers is how late timers of this side fired, a few of each second.
	Timers *Histogram

	Push PushSample
}

// A PushSample is what subscribers have counted.
type PushSample struct {
	Deliveries int64
	// Missing is how many publications subscribers were not given. The numbers of those that they
	// were given tell.
	Missing int64
	// Duplicates are second copies of the last publication. Late ones come behind a later one: they
	// were counted as missing before, or are a second copy.
	Duplicates, Late int64
	// Pinged is how many subscribers the server has pinged, of those that speak Centrifuge.
	Pinged int64
	// Silence is the longest time for which no subscriber of a process was given anything, between
	// two publications that count.
	Silence  time.Duration
	Delivery *Histogram
	Spreads  []Spread        `json:",omitempty"`
	Returns  []time.Duration `json:",omitempty"` // how long after each storm all were back
	Away     time.Duration   `json:",omitempty"` // how long after the last one not all were, when the run ended
}

func newPushSample() *PushSample { return &PushSample{Delivery: NewHistogram()} }

func newSample() *Sample {
	return &Sample{Failed: map[string]int64{}, Latency: NewHistogram(), Service: NewHistogram(), Late: NewHistogram(),
		Timers: NewHistogram(), Push: *newPushSample()}
}

// fail counts n errors with the same reason.
func (s *Sample) fail(reason string, n int64) {
	if _, known := s.Failed[reason]; !known && len(s.Failed) >= mostReasons {
		reason = "other"
	}
	s.Failed[reason] += n
}

// failures is how many errors there were, of any reason.
func (s *Sample) failures() (n int64) {
	for _, count := range s.Failed {
		n += count
	}
	return n
}

// reasons lists the errors, the most frequent first.
func (s *Sample) reasons() string {
	names := slices.SortedFunc(maps.Keys(s.Failed), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.Failed[b], s.Failed[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s (%d)", name, s.Failed[name])
	}
	return strings.Join(names, ", ")
}

// add adds another sample's counts to s.
func (s *Sample) add(o *Sample) {
	s.Requests += o.Requests
	s.Bytes += o.Bytes
	s.Opened += o.Opened
	s.Lost += o.Lost
	for reason, n := range o.Failed {
		s.fail(reason, n)
	}
	s.Latency.Add(o.Latency)
	s.Service.Add(o.Service)
	s.Late.Add(o.Late)
	s.Timers.Add(o.Timers)
	s.Push.add(&o.Push)
}

// add adds another sample's counts. Spreads are not added up: see spreads.
func (s *PushSample) add(o *PushSample) {
	s.Deliveries += o.Deliveries
	s.Missing += o.Missing
	s.Duplicates += o.Duplicates
	s.Late += o.Late
	s.Pinged += o.Pinged
	s.Silence = max(s.Silence, o.Silence)
	s.Delivery.Add(o.Delivery)
	s.Spreads = append(s.Spreads, o.Spreads...)
	s.Returns = append(s.Returns, o.Returns...)
	s.Away = max(s.Away, o.Away)
}

// compact has the JSON of s made quickly.
func (s *Sample) compact() {
	for _, h := range []*Histogram{s.Latency, s.Service, s.Late, s.Timers, s.Push.Delivery} {
		h.sparse = true
	}
}

// reasonOf names an error in few words, so that equal failures count together.
func reasonOf(err error) string {
	var dns *net.DNSError
	var number syscall.Errno
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return "closed by the server"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "cut off by the server"
	case errors.As(err, &dns):
		return "name not found: " + dns.Name
	case errors.As(err, &number):
		return number.Error()
	}
	return firstWords(err.Error())
}

// firstWords cuts a message that may hold what differs from one connection to the next.
func firstWords(text string) string {
	const most = 80
	if len(text) > most {
		return fmt.Sprintf("%.*s…", most, text)
	}
	return text
}
