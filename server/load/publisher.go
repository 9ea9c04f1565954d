package load

import (
	"bytes"
	"fmt"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

// A publishTalk publishes to one channel by HTTP, one publication after the other.
type publishTalk struct {
	response httpTalk
	plan     *part
	head     []byte // of the request, up to the number of its Content-Length
	topic    string
	last     *atomic.Int64 // the number of the last publication
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
	number := t.last.Add(1)
	if t.plan.Protocol == Mercure {
		data := appendPublication(nil, number, due, t.plan.Size)
		t.body = append(t.body[:0], url.Values{"topic": {t.topic}, "data": {string(data)}}.Encode()...)
	} else {
		t.body = fmt.Appendf(t.body[:0], `{"channel":%s,"data":`, quoted(t.topic))
		t.body = append(appendPublication(t.body, number, due, t.plan.Size), '}')
	}
	t.out = append(t.out[:0], t.head...)
	t.out = strconv.AppendInt(t.out, int64(len(t.body)), 10)
	return append(append(t.out, "\r\n\r\n"...), t.body...)
}

func (t *publishTalk) replies(p []byte) (done, refused int64, reason string, err error) {
	done, refused, reason, err = t.response.replies(p)
	if t.refused && done > 0 {
		t.refused, refused, reason = false, done, "the publication was refused"
	}
	return done, refused, reason, err
}

func (t *publishTalk) ends() (int64, error) { return t.response.ends() }

func (t *publishTalk) closing() bool { return t.response.closing() }
