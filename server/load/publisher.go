package load

import (
	"bytes"
	"fmt"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

// A publisher is the connection that publishes to one channel, as the opener knows it.
type publisher struct {
	channel int
	state   dialState
	pending unaccepted // with Plan.Retry
}

// An unaccepted is the publication that is made again, on the same connection or on the next one.
type unaccepted struct {
	number int64     // 0: there is none
	due    time.Time // when it was due
}

func (p *publisher) dialing() *dialState { return &p.state }

func (p *publisher) open(w *worker) error {
	if w.plan.Protocol == Rooms {
		return w.openSpeaker(p)
	}
	const i = 0 // all publishers share a lane, so that the rate is theirs together
	t := newPublishTalk(w.plan, w.target, w.audience.topics[p.channel], &w.last[p.channel])
	k := w.wire(i, t, p)
	if w.plan.Retry {
		t.pending, k.retries = &p.pending, t.retries
		k.owed, k.after = p.pending.due, time.Now().Add(retryPause)
	}
	return w.serve(i, k)
}

// A publishTalk publishes to one channel by HTTP, one publication after the other.
type publishTalk struct {
	response httpTalk
	plan     *part
	head     []byte // of the request, up to the number of its Content-Length
	topic    string
	last     *atomic.Int64 // the number of the last publication
	pending  *unaccepted   // nil: none is made again
	number   int64         // of the publication under way
	due      time.Time     // likewise
	refused  bool          // the last publication, in a response with status 200
	out      []byte
	body     []byte
}

func newPublishTalk(p *part, u *url.URL, topic string, last *atomic.Int64) *publishTalk {
	at, kind := *u, "application/json"
	at.RawQuery, at.Path = "", "/api/publish"
	header := append([]string(nil), p.Header...)
	if p.Protocol == Mercure {
		at.Path, kind = "/.well-known/mercure", "application/x-www-form-urlencoded"
	}
	switch {
	case p.Key != "" && p.Protocol == Mercure:
		header = append(header, "Authorization: Bearer "+p.Key)
	case p.Key != "":
		header = append(header, "X-API-Key: "+p.Key)
	}
	header = append(header, "Content-Type: "+kind)
	head := httpRequest(Plan{Method: "PUBLISH", Header: header}, &at)
	head = append([]byte("POST"), bytes.TrimPrefix(head, []byte("PUBLISH"))...)
	head = append(bytes.TrimSuffix(head, []byte("\r\n")), "Content-Length: "...)
	t := &publishTalk{plan: p, head: head, topic: topic, last: last}
	t.response.response.onData = func(p []byte) {
		t.refused = t.refused || bytes.HasPrefix(p, []byte(`{"error":`))
	}
	return t
}

func (t *publishTalk) request(due time.Time) []byte {
	t.number, t.due = t.next(), due
	switch {
	case t.plan.Protocol == Mercure:
		data := appendPublication(nil, t.number, due, t.plan.Size)
		t.body = append(t.body[:0], url.Values{"topic": {t.topic}, "data": {string(data)}}.Encode()...)
	case t.pending != nil:
		t.body = fmt.Appendf(t.body[:0], `{"channel":%s,"idempotency_key":"%x-%d","data":`, quoted(t.topic), t.plan.Run,
			t.number)
		t.body = append(appendPublication(t.body, t.number, due, t.plan.Size), '}')
	default:
		t.body = fmt.Appendf(t.body[:0], `{"channel":%s,"data":`, quoted(t.topic))
		t.body = append(appendPublication(t.body, t.number, due, t.plan.Size), '}')
	}
	t.out = append(t.out[:0], t.head...)
	t.out = strconv.AppendInt(t.out, int64(len(t.body)), 10)
	return append(append(t.out, "\r\n\r\n"...), t.body...)
}

// next is the number of the next publication. One that is made again keeps its own.
func (t *publishTalk) next() (number int64) {
	if t.pending != nil && t.pending.number != 0 {
		number = t.pending.number
		*t.pending = unaccepted{}
		return number
	}
	return t.last.Add(1)
}

// retries has the publication under way made again, if it can be. reason is that of the refusal, or
// empty if the connection has ended.
func (t *publishTalk) retries(reason string) bool {
	if reason != "" && reason != unavailable || time.Since(t.due) > t.plan.Timeout {
		return false
	}
	*t.pending = unaccepted{t.number, t.due}
	return true
}

// unavailable is the refusal of a server that asks to come back later.
const unavailable = "status 503"

func (t *publishTalk) replies(p []byte) (done, refused int64, reason string, err error) {
	done, refused, reason, err = t.response.replies(p)
	if t.refused && done > 0 {
		t.refused, refused, reason = false, done, "the publication was refused"
	}
	return done, refused, reason, err
}

func (t *publishTalk) ends() (int64, error) { return t.response.ends() }

func (t *publishTalk) closing() bool { return t.response.closing() }
