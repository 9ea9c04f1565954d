package load

import (
	"bytes"
	"fmt"
	"net/url"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h1"
)

// A streamLink is a subscriber's connection that receives Server-Sent Events. Its methods run on
// the loop.
type streamLink struct {
	worker     *worker
	lane       *lane
	subscriber *subscriber
	conn       *myriad.Conn
	response   httpResponse
	line       []byte // of an event whose end has not come
	reason     error
}

// mostLine is how long an event may be.
const mostLine = 2 * largestMessage

// streamRequest asks for a stream of a channel's events.
func streamRequest(p Plan, u *url.URL, topic string) []byte {
	at := *u
	q := at.Query()
	switch p.Protocol {
	case Mercure:
		q.Set("topic", topic)
		if at.Path == "" || at.Path == "/" {
			at.Path = "/.well-known/mercure"
		}
	default:
		q.Set("channel", topic)
		if at.Path == "" || at.Path == "/" {
			at.Path = "/events"
		}
	}
	at.RawQuery = q.Encode()
	p.Method, p.Body = "GET", ""
	p.Header = append([]string{"Accept: text/event-stream"}, p.Header...)
	if p.Token != "" {
		p.Header = append(p.Header, "Authorization: Bearer "+p.Token)
	}
	return httpRequest(p, &at)
}

// Opened implements myriad.Handler.
func (k *streamLink) Opened(c *myriad.Conn) {
	k.conn = c
	k.subscriber.audience.connected(k.subscriber, k)
	k.response.onHead = k.began
	k.response.onData = k.data
	if _, err := c.Write(streamRequest(k.worker.plan.Plan, k.worker.target, k.subscriber.topic())); err != nil {
		c.Abort(err)
	}
}

// Abort implements closer.
func (k *streamLink) Abort(error) { k.conn.Abort(nil) }

func (k *streamLink) began(status int) {
	if status != 200 {
		k.reason = fmt.Errorf("status %d", status)
		k.conn.Abort(k.reason)
		return
	}
	k.response.head, k.response.known = h1.ResponseHead{}, nil // there is no other
	k.subscriber.audience.subscribed(k.subscriber)
}

// data takes in a piece of the stream. Only whole lines are looked at.
func (k *streamLink) data(p []byte) {
	end := bytes.LastIndexByte(p, '\n') + 1
	if len(k.line) > 0 && end > 0 {
		k.line = append(k.line, p[:end]...)
		k.subscriber.received(k.line, time.Now())
		k.line = nil
	} else if end > 0 {
		k.subscriber.received(p[:end], time.Now())
	}
	if end < len(p) {
		k.line = append(k.line, p[end:]...)
	}
	if len(k.line) > mostLine {
		k.reason = fmt.Errorf("an event of more than %d bytes", mostLine)
		k.conn.Abort(k.reason)
	}
}

// Received implements myriad.Handler.
func (k *streamLink) Received(c *myriad.Conn, p []byte) {
	k.lane.received(len(p))
	for len(p) > 0 {
		n, status, err := k.response.take(p)
		if err != nil || status != 0 { // a stream of events does not end in order
			k.reason = err
			c.Abort(err)
			return
		}
		p = p[n:]
	}
}

// Closed implements myriad.Handler.
func (k *streamLink) Closed(_ *myriad.Conn, err error) {
	if k.reason != nil {
		err = k.reason
	}
	k.worker.left(k.subscriber, err)
}
