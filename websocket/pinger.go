package websocket

import (
	"math"
	"slices"
	"time"

	"github.com/myriad-go/myriad/buf"
)

// This file is pings and pongs, both ways. All of it runs on the loop.

const (
	// maxPongs is how many pongs may wait in the output. Above it only the latest ping is answered,
	// and at most one in each pongRetry until the output has moved: "the endpoint MAY elect to send
	// a Pong frame for only the most recently processed Ping frame", RFC 6455 §5.5.3.
	maxPongs  = 16
	pongRetry = 100 * time.Millisecond
)

// A pinger judges by the silence of a peer whether it is alive. It is the loop's.
type pinger struct {
	mark     int64       // see pingState
	answerBy uint32      // guarded by Conn.mu: when an answer is due, in milliseconds modulo 2^32
	answer   answerState // guarded by Conn.mu
	state    pingState
	pongs    uint8 // sent since the output was last seen to be empty
}

// A pingState says what the pinger waits for, and what its mark is.
type pingState uint8

const (
	pingsIdle    pingState = iota // for silence; mark is when something was received last, in milliseconds
	pingsQueued                   // for the kernel to be offered a ping
	pingsRefused                  // for any byte behind a ping that the kernel has refused; mark is when
	pingsSent                     // for any byte behind a ping; mark is when the kernel was offered that
	pingsEnding                   // for callbacks behind the peer's end; mark is how many of them are left
	pingsClosing                  // for the end of the closing handshake; mark is how many bytes are queued
)

// received notes that the peer is alive.
func (ping *pinger) received(now int64) {
	if ping.state <= pingsSent {
		ping.state, ping.mark = pingsIdle, now
	}
}

// due is when the silence is to be judged, in milliseconds; 0: never.
func (ping *pinger) due(s *settings) int64 {
	switch {
	case ping.state == pingsIdle && s.pingInterval > 0:
		return ping.mark + s.pingInterval.Milliseconds()
	case ping.state == pingsSent || ping.state == pingsRefused:
		return ping.mark + s.pongTimeout.Milliseconds()
	}
	return 0
}

// judgeSilence pings a peer that has been silent for long, and gives one up that stayed silent
// after that. Any byte counts as life. A connection that is not being read, because callbacks are
// slow, is not judged. The engine calls it when what has come has been read.
//
// The peer's time begins when the kernel has been offered the ping, because before that it waits
// for this server. If the kernel has refused the ping, the peer reads slowly, or not at all. It
// has its time once more, because the ping may have left in between.
func (ping *pinger) judgeSilence(c *Conn, now int64) {
	switch {
	case !c.reading():
		ping.received(now)
	case ping.state == pingsRefused:
		ping.state, ping.mark = pingsSent, now
	case ping.state == pingsSent:
		c.mu.Lock()
		c.end.endWith(c, errNoPong)
		c.mu.Unlock()
		c.nc.Abort(errNoPong)
	default:
		_ = c.Ping(nil) // if the output is full, the peer has all the more to prove
		if ping.mark = now; c.settings().pongTimeout > 0 {
			ping.state = pingsQueued
			c.nc.Notify()
		}
	}
}

// offered notes that the kernel has been offered what was queued before, and sets the timer for
// what is expected of the peer. On the loop.
func (ping *pinger) offered(c *Conn) {
	c.mu.Lock()
	ponged, answered := ping.state == pingsQueued, ping.answer == answerQueued
	if !ponged && !answered {
		c.mu.Unlock()
		return
	}
	now, refused := c.clock().UnixMilli(), c.nc.Queued() > 0
	if ponged {
		if ping.state, ping.mark = pingsSent, now; refused {
			ping.state = pingsRefused
		}
	}
	if answered {
		ping.answer, ping.answerBy = answerDue, uint32(now+c.settings().answerTimeout)
		if refused {
			ping.answer = answerRefused
		}
	}
	c.mu.Unlock()
	if c.end.phase() == open {
		c.arm(c.now())
	}
}

// An answerState says how far a pinger has come with an answer that a protocol of the application
// expects of the peer: see Conn.AwaitAnswer.
type answerState uint8

const (
	answerIdle   answerState = iota // none is expected
	answerQueued                    // the question waits for the kernel
	// the kernel has refused the question: the peer has its time once more after answerBy
	answerRefused
	answerDue  // answerBy is when it is due
	answerLate // OnNoAnswer is to be called behind what has come before
)

// longestAnswer is within what answerBy can tell, in milliseconds.
const longestAnswer = 1<<31 - 1

// answerLeft is how many milliseconds the peer has still to answer. It is not ok if there is no
// deadline. It is called under mu.
func (ping *pinger) answerLeft(now int64) (ms int64, ok bool) {
	return int64(int32(ping.answerBy - uint32(now))), ping.answer == answerRefused || ping.answer == answerDue
}

// judgeAnswer tells of an answer that has not come. A connection that is not being read is not
// judged. On the loop, when what has come has been read.
func (ping *pinger) judgeAnswer(c *Conn, now int64) {
	reading := c.reading()
	c.mu.Lock()
	left, due := ping.answerLeft(now)
	due = due && left <= 0
	if due {
		ping.answerBy = uint32(now + c.settings().answerTimeout)
		switch {
		case !reading:
		case ping.answer == answerRefused:
			ping.answer = answerDue
		default:
			ping.answer = answerLate
		}
	}
	late := due && ping.answer == answerLate
	c.mu.Unlock()
	if late {
		c.dispatch(event{kind: unanswered})
	}
}

// answerPing sends the pong, or remembers the latest ping while too many pongs wait.
func (ping *pinger) answerPing(c *Conn, payload []byte) {
	if c.nc.Queued() == 0 {
		ping.pongs = 0
	}
	if ping.pongs < maxPongs && !ping.waitingPong(c) && c.control(OpPong, payload) == nil {
		ping.pongs++
		return
	}
	if !c.end.writable() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.needCold()
	if r.pong != nil {
		r.pong.Release()
	}
	r.pong = buf.From(payload)
	c.nc.Notify() // comes when what was written has been offered to the kernel
}

func (ping *pinger) waitingPong(c *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cold != nil && c.cold.pong != nil
}

// flushPong answers the ping that was remembered, if the output has moved. Otherwise it is tried
// again a little later.
func (ping *pinger) flushPong(c *Conn) {
	if !ping.waitingPong(c) || !c.end.writable() {
		return
	}
	if c.nc.Queued() == 0 {
		ping.pongs = 0
		ping.sendPong(c)
	}
	if c.end.phase() == open { // then the timer is that of the end
		c.arm(c.now())
	}
}

func (ping *pinger) sendPong(c *Conn) {
	c.mu.Lock()
	r := c.cold
	pong := r.pong
	r.pong = nil
	c.dropCold()
	c.mu.Unlock()
	if c.control(OpPong, pong.Bytes()) == nil {
		ping.pongs++
		pong.Release()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.end.writable() {
		pong.Release()
		return
	}
	c.needCold().pong = pong
}

// This file measures how long peers take to answer pings, for Options.OnPong. Without OnPong
// nothing is remembered.

// maxSentPings is how many pings wait for their pongs at most. Above it the oldest is forgotten,
// and its pong is ignored.
const maxSentPings = 16

// sentPings are pings that have no pong yet, the oldest first.
type sentPings []sentPing

type sentPing struct {
	payload string
	at      time.Time // zero: the connection had no clock yet
}

// remember is called under mu.
func (ping *pinger) remember(c *Conn, p []byte) {
	r := c.needCold()
	if r.pings == nil {
		r.pings = new(sentPings)
	}
	if len(*r.pings) == maxSentPings {
		*r.pings = slices.Delete(*r.pings, 0, 1)
	}
	sent := sentPing{payload: string(p)}
	if c.nc != nil {
		sent.at = c.clock()
	}
	*r.pings = append(*r.pings, sent)
}

// answered takes a pong. On the loop.
func (ping *pinger) answered(c *Conn, payload []byte) {
	if c.settings().OnPong == nil {
		return
	}
	c.mu.Lock()
	at := ping.recall(c, payload)
	c.mu.Unlock()
	if at.IsZero() || c.end.muted() {
		return
	}
	rtt := min(max(c.clock().Sub(at).Microseconds(), 0), math.MaxUint32)
	ev := event{kind: ponged, p: payload, micros: uint32(rtt)}
	if !c.settings().inline && len(payload) > 0 {
		ev.block = buf.From(payload)
	}
	c.dispatch(ev)
}

// recall finds the oldest ping with this payload and forgets it and those before it, which a peer
// may leave unanswered then (RFC 6455 §5.5.3). It returns the zero time if there is none. It is
// called under mu.
func (ping *pinger) recall(c *Conn, payload []byte) (at time.Time) {
	if c.cold == nil || c.cold.pings == nil {
		return at
	}
	all := *c.cold.pings
	i := slices.IndexFunc(all, func(sent sentPing) bool { return sent.payload == string(payload) })
	if i < 0 {
		return at
	}
	at = all[i].at
	if *c.cold.pings = slices.Delete(all, 0, i+1); len(*c.cold.pings) == 0 {
		c.cold.pings = nil
		c.dropCold()
	}
	return at
}
