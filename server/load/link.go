package load

import (
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
)

// A talk is one connection's side of a protocol of requests and replies. It is given the bytes that
// come, in any pieces.
type talk interface {
	// request returns what is to be sent: the requests of Plan.Pipeline. The bytes are used before
	// the next call. due is when it was due.
	request(due time.Time) []byte
	// replies takes in bytes, and returns how many replies they complete, and how many of these are
	// refusals, for which reason. An error ends the connection.
	replies(p []byte) (done, refused int64, reason string, err error)
	// ends is told that the server has ended its side. It may complete a reply.
	ends() (done int64, err error)
	// closing reports whether the server closes the connection after the last reply.
	closing() bool
}

// A wireLink is a link over bytes: HTTP or Redis. Its methods run on the loop, but for send and
// abort.
type wireLink struct {
	linkState
	lane *lane
	talk talk
	conn *myriad.Conn

	dialer dialer
	since  time.Time      // it was opened
	reopen func(d dialer) // it has ended

	waiting atomic.Int64 // replies; set by send, counted on the loop
	refused int64        // of these
	reason  string

	answered bool // the server has replied

	// retries reports whether the request under way is to be made again, and notes that. reason is
	// the server's refusal; empty: the connection has ended before the reply. Nil: never.
	retries func(reason string) bool
}

func (k *wireLink) state() *linkState { return &k.linkState }

func (k *wireLink) abort(err error) { k.conn.Abort(err) }

func (k *wireLink) send(due time.Time) error {
	k.waiting.Store(int64(k.lane.plan.Pipeline))
	_, err := k.conn.Write(k.talk.request(due))
	return err
}

// Opened implements myriad.Handler.
func (k *wireLink) Opened(c *myriad.Conn) {
	k.conn, k.since = c, time.Now()
	k.dialer.dialing().opened()
	k.lane.opened(k)
}

// Received implements myriad.Handler.
func (k *wireLink) Received(c *myriad.Conn, p []byte) {
	k.lane.received(len(p))
	done, refused, reason, err := k.talk.replies(p)
	if k.refused += refused; reason != "" {
		k.reason = reason
	}
	switch {
	case err != nil:
		c.Abort(err)
	case !k.took(done):
		c.Abort(errUnasked)
	case k.talk.closing():
		_ = c.Close()
	}
}

// took counts replies, and tells the lane when the last of them is there. It returns false for a
// reply that was not asked for.
func (k *wireLink) took(done int64) bool {
	if done == 0 {
		return true
	}
	k.answered = true
	left := k.waiting.Add(-done)
	if left == 0 {
		refused, reason := k.refused, k.reason
		k.refused, k.reason = 0, ""
		if refused > 0 && k.retries != nil && k.retries(reason) {
			k.lane.owe(k, k.talk.closing())
			if k.talk.closing() {
				k.lane.retire(k)
			}
			return true
		}
		k.lane.replied(k, int64(k.lane.plan.Pipeline), refused, reason, k.talk.closing())
	}
	return left >= 0
}

// Ended implements myriad.Ender.
func (k *wireLink) Ended(c *myriad.Conn) {
	done, err := k.talk.ends()
	k.took(done)
	if err != nil {
		c.Abort(err)
		return
	}
	_ = c.Close()
}

// Closed implements myriad.Handler.
func (k *wireLink) Closed(_ *myriad.Conn, err error) {
	idle := k.lane.isIdle(k) && time.Since(k.since) > firstBackoff
	if k.retries != nil && k.lane.isUnderWay(k) && k.retries("") {
		k.lane.owe(k, true)
	}
	k.lane.lost(err, k)
	switch s := k.dialer.dialing(); {
	case idle, k.retries != nil && k.answered: // what is pending waits for retryPause
		s.idled()
	case k.answered:
		s.succeeded()
	default:
		s.failed()
	}
	k.reopen(k.dialer)
}
