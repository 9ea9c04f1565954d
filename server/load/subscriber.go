package load

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"
)

// Publications are JSON objects that begin with their number in their channel, from 1, and the time
// at which they were due, in nanoseconds since 1970: {"seq":1,"due":1764000000000000000,…}.
var (
	numberKey = []byte(`"seq":`)
	timeKey   = []byte(`"due":`)
)

// appendPublication appends a publication of size bytes.
func appendPublication(dst []byte, number int64, due time.Time, size int) []byte {
	from := len(dst)
	dst = append(append(dst, '{'), numberKey...)
	dst = strconv.AppendInt(dst, number, 10)
	dst = append(append(dst, ','), timeKey...)
	dst = strconv.AppendInt(dst, due.UnixNano(), 10)
	dst = append(dst, `,"pad":"`...)
	for len(dst)-from < size-2 {
		dst = append(dst, 'x')
	}
	return append(dst, `"}`...)
}

// eachNumber calls f for each publication in a message, in order. Escaped quotes are no keys, so
// that a publication may stand in a JSON string, too.
func eachNumber(p []byte, f func(number, due int64)) {
	for {
		at := bytes.Index(p, numberKey)
		if at < 0 {
			return
		}
		p = p[at+len(numberKey):]
		number, rest := leadingInt(p)
		rest, found := bytes.CutPrefix(rest, []byte(`,`))
		rest, found2 := bytes.CutPrefix(rest, timeKey)
		if number == 0 || !found || !found2 {
			continue
		}
		var due int64
		due, p = leadingInt(rest)
		f(number, due)
	}
}

// leadingInt parses the digits that p begins with, 18 at most.
func leadingInt(p []byte) (n int64, rest []byte) {
	i := 0
	for ; i < len(p) && i < 19 && '0' <= p[i] && p[i] <= '9'; i++ {
		n = n*10 + int64(p[i]-'0')
	}
	return n, p[i:]
}

// A subscriber receives the publications of one channel, over one connection after the other. It
// belongs to the callbacks of its connection, which come one at a time, and is small, because there
// are many.
type subscriber struct {
	audience *audience
	last     int64  // the highest publication that it was given
	offset   uint64 // its position in the channel, for recovery; noOffset: not known
	conn     closer // the connection under way, or nil
	number   int32  // it says the channel
	present  bool   // it is subscribed
	late     bool   // it was not when the run began
	pinged   bool   // the server has pinged it
	state    dialState
}

// noOffset is no position in a channel.
const noOffset = math.MaxUint64

// A closer is a connection that can be ended at once.
type closer interface{ Abort(err error) }

func (s *subscriber) channel() int32 { return s.number % int32(len(s.audience.topics)) }

func (s *subscriber) topic() string { return s.audience.topics[s.channel()] }

// received takes in the publications of one message, whatever is around them.
func (s *subscriber) received(p []byte, now time.Time) {
	eachNumber(p, func(number, due int64) { s.audience.delivered(s, number, due, now.UnixNano()) })
}

// A mould is what most messages of a channel look like: one publication, and nothing that differs
// but its number and its time. To compare with it costs less than to search in a message, and
// checks every byte.
type mould struct {
	before []byte // the number
	pad    []byte // as much as can be
	size   int    // of the publication
}

// These stand around the padding of a publication, at the end of a message.
var (
	padKey = []byte(`,"pad":"`)
	padEnd = []byte(`"}}}}`)
)

func newMould(topic string, size int) mould {
	m := mould{before: fmt.Appendf(nil, `{"push":{"channel":%s,"pub":{"data":{`, quoted(topic)),
		pad: bytes.Repeat([]byte{'x'}, size), size: size}
	m.before = append(m.before, numberKey...)
	return m
}

// parse returns the number and the time of the publication in a message that looks so.
func (m *mould) parse(p []byte) (number, due int64, ok bool) {
	rest, ok := bytes.CutPrefix(p, m.before)
	if !ok {
		return 0, 0, false
	}
	number, rest = leadingInt(rest)
	rest, ok1 := bytes.CutPrefix(rest, []byte(`,`))
	rest, ok2 := bytes.CutPrefix(rest, timeKey)
	due, rest = leadingInt(rest)
	rest, ok3 := bytes.CutPrefix(rest, padKey)
	rest, ok4 := bytes.CutSuffix(rest, padEnd)
	// The braces of the message's own end are the last three.
	size := len(p) - (len(m.before) - len(numberKey) - 1) - 3
	return number, due, ok1 && ok2 && ok3 && ok4 && number > 0 && size == m.size && bytes.Equal(rest, m.pad[:len(rest)])
}

// An audience is all subscribers of one worker.
type audience struct {
	topics      []string
	moulds      []mould // of topics, for the Centrifuge protocol
	subscribers []subscriber
	first       int32               // the number of the first subscriber
	epochs      sync.Map            // of channels that can be recovered: topic → epoch
	arrived     func(s *subscriber) // of Kind Arrivals: called when one is subscribed

	mu     sync.Mutex // guards what follows, and each subscriber's last and back
	sample *PushSample
	spread map[publicationKey]*Spread // since the last collection
	newest []newest                   // of spread, by channel: what is found without a search
	from   int64                      // what was due then or later counts, ns since 1970; 0: nothing does yet
	heard  int64                      // when the last publication came that counts; 0: none has

	present int // subscribers that are subscribed, and were when the run began
	late    int // that were not, and how many of these are subscribed
	joined  int
	stormed time.Time // when the last storm began; zero once all are back
}

// A newest is the latest publication of a channel.
type newest struct {
	number int64
	spread *Spread // nil: there is none, or it is not followed
}

// A publicationKey names a publication.
type publicationKey struct {
	channel int32
	number  int64
}

// A Spread is how far a publication has come, as durations since it was due.
type Spread struct {
	Channel     int32
	Number      int64
	Reached     int // subscribers
	First, Last time.Duration
}

// mostSpreads is how many publications are followed at a time to their last subscriber. Further
// ones have no part in PushSample.First and Last.
const mostSpreads = 4096

func newAudience(p *part) *audience {
	a := &audience{subscribers: make([]subscriber, p.Connections), first: int32(p.First), sample: newPushSample(),
		spread: map[publicationKey]*Spread{}}
	for i := range p.Channels {
		a.topics = append(a.topics, p.Prefix+strconv.Itoa(i))
		if p.Protocol == Centrifuge {
			a.moulds = append(a.moulds, newMould(a.topics[i], p.Size))
		}
	}
	a.newest = make([]newest, p.Channels)
	for i := range a.subscribers {
		a.subscribers[i] = subscriber{audience: a, number: int32(p.First + i), offset: noOffset}
	}
	return a
}

// begun is called with a message of a room before it is delivered. The first one that a member is
// given is where its numbers begin: no server says when it has joined.
func (a *audience) begun(s *subscriber, number int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.last == 0 {
		s.last = number - 1
	}
}

// delivered takes in one publication that a subscriber was given. due and now are ns since 1970.
func (a *audience) delivered(s *subscriber, number, due, now int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.late && s.last == 0 {
		s.last = number - 1
	}
	switch {
	case number == s.last:
		a.sample.Duplicates++
		return
	case number < s.last:
		a.sample.Late++
		return
	}
	a.sample.Missing += number - s.last - 1
	s.last = number
	a.sample.Deliveries++
	if a.from == 0 || due < a.from {
		return
	}
	if a.heard != 0 {
		a.sample.Silence = max(a.sample.Silence, time.Duration(now-a.heard))
	}
	a.heard = max(a.heard, now)
	took := time.Duration(now - due)
	a.sample.Delivery.Record(took, 1)
	if s.late {
		return // the publication is complete without it
	}
	if p := a.follow(s.channel(), number, took); p != nil {
		p.Reached++
		p.First, p.Last = min(p.First, took), max(p.Last, took)
	}
}

// follow returns how far a publication has come; nil: too many are followed. The audience is
// locked.
func (a *audience) follow(channel int32, number int64, took time.Duration) *Spread {
	n := &a.newest[channel]
	if n.number == number && n.spread != nil {
		return n.spread
	}
	key := publicationKey{channel, number}
	p := a.spread[key]
	if p == nil {
		if len(a.spread) >= mostSpreads {
			return nil
		}
		p = &Spread{Channel: channel, Number: number, First: took}
		a.spread[key] = p
	}
	*n = newest{number, p}
	return p
}

// connected notes the connection of a subscriber.
func (a *audience) connected(s *subscriber, c closer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.conn = c
}

// subscribed is called when a subscriber has been told that it is subscribed.
func (a *audience) subscribed(s *subscriber) {
	if a.take(s) && a.arrived != nil {
		a.arrived(s)
	}
}

// take counts a subscriber as subscribed, unless it is already, or has left meanwhile.
func (a *audience) take(s *subscriber) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.present || s.conn == nil {
		return false
	}
	s.present = true
	s.state.opened()
	if s.late {
		a.joined++
		return true
	}
	if a.present++; a.present == a.expected() && !a.stormed.IsZero() {
		a.sample.Returns = append(a.sample.Returns, time.Since(a.stormed))
		a.stormed = time.Time{}
	}
	return true
}

// expected is how many subscribers there were when the run began. The audience is locked.
func (a *audience) expected() int { return len(a.subscribers) - a.late }

// pinged counts a subscriber with its first ping.
func (a *audience) pinged(s *subscriber) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !s.pinged {
		s.pinged = true
		a.sample.Pinged++
	}
}

// left is called when the connection of a subscriber has ended. It reports whether that was not our
// own doing, and whether the subscriber was subscribed.
func (a *audience) left(s *subscriber) (unasked, subscribed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	unasked, subscribed = s.conn != nil, s.present || s.conn == nil
	a.forget(s)
	return unasked, subscribed
}

// leave ends the connection of a subscriber, if there is one.
func (a *audience) leave(s *subscriber) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.conn != nil {
		s.conn.Abort(nil) // it calls nothing
	}
	a.forget(s)
}

// forget forgets the connection of a subscriber. The audience is locked.
func (a *audience) forget(s *subscriber) {
	if s.conn = nil; s.present {
		s.present = false
		if s.late {
			a.joined--
		} else {
			a.present--
		}
	}
}

// storm closes all connections, unless some subscribers are not back from the last storm.
func (a *audience) storm() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.present < a.expected() {
		return
	}
	a.stormed = time.Now()
	for i := range a.subscribers {
		if s := &a.subscribers[i]; s.conn != nil {
			s.conn.Abort(nil) // it calls nothing
			a.forget(s)
		}
	}
}

// abort ends all connections at once. Those of an engine that shuts down would say that they go.
func (a *audience) abort() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.subscribers {
		if s := &a.subscribers[i]; s.conn != nil {
			s.conn.Abort(nil)
			a.forget(s)
		}
	}
}

// end counts what subscribers lack of each channel's last publications. It returns false, and
// counts nothing, while there are such subscribers or some are not back from the last storm, and
// patient is true.
func (a *audience) end(last []int64, patient bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	missing := int64(0)
	for i := range a.subscribers {
		s := &a.subscribers[i]
		if s.late && s.last == 0 {
			continue // it was never there
		}
		missing += max(0, last[s.channel()]-s.last)
	}
	if patient && (missing > 0 || !a.stormed.IsZero()) {
		return false
	}
	a.sample.Missing += missing
	if !a.stormed.IsZero() {
		a.sample.Away = time.Since(a.stormed)
	}
	return true
}

// start says from when on publications count. They are for the subscribers that there are now. It
// returns how many there are not, of each channel; nil: all are there.
func (a *audience) start(from time.Time) (absent []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.from = from.UnixNano()
	if a.present == len(a.subscribers) {
		return nil
	}
	absent = make([]int, len(a.topics))
	for i := range a.subscribers {
		if s := &a.subscribers[i]; !s.present {
			s.late = true
			a.late++
			absent[s.channel()]++
		}
	}
	return absent
}

// open is how many are subscribed.
func (a *audience) open() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.present + a.joined
}

// collect hands over what has been counted since the last call.
func (a *audience) collect() PushSample {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := *a.sample
	for _, p := range a.spread {
		s.Spreads = append(s.Spreads, *p)
	}
	a.sample, a.spread = newPushSample(), map[publicationKey]*Spread{}
	clear(a.newest)
	return s
}
