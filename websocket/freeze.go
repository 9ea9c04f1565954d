package websocket

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/myriad-go/myriad"
	written "github.com/myriad-go/myriad/internal/parts"
)

// This file is how connections move to another process: package handover and docs/adr/0035.

// frozenFormat is what Freeze writes, and Thaw reads.
const frozenFormat = "websocket/1"

// frozenVersion is that of its parts.
const frozenVersion = 1

// The parts of a frozen connection. What is missing has its zero value. Times are in milliseconds,
// plus 1.
const (
	partValue       = "value" // what Options.FreezeValue has appended
	partSubprotocol = "subprotocol"
	partOverflow    = "overflow"
	partLimit       = "limit"     // SetOverflow's, in bytes
	partDeflate     = "deflate"   // negotiated terms, as deflateTerms.index, plus 1
	partWindowIn    = "windowIn"  // that compression keeps
	partWindowOut   = "windowOut" // the same for output
	partSilent      = "silent"    // since what the ping state counts from
	partPing        = "ping"      // pingState
	partAnswer      = "answer"    // what is left for an answer
	partRefused     = "refused"   // the kernel has refused the question
)

// errMoved is what Context ends with where the connection does not go on.
var errMoved = errors.New("websocket: the connection goes on in another process")

// errNotAtRest keeps a connection here that something has been asked of since AtRest.
var errNotAtRest = fmt.Errorf("websocket: the connection is not at rest any more: %w", myriad.ErrBusy)

// Thawer is what package handover gives a name: connections of these Options move if FreezeValue
// and ThawValue are set. A connection over HTTP/2, one of Dial, and one with Options.Pull do not.
// Nor does one for which callbacks run or wait, or of which half a message is there: it moves when
// that is over. What moves is what was negotiated, with the windows of compression, and the
// policies, limits and deadlines, and messages that a Group was sent. Membership of groups, values
// of contexts and pings that wait for OnPong do not: ThawValue joins groups anew. Options without
// Subprotocols or Compression that a connection uses refuse it, and with it the whole hand-over.
func (o *Options) Thawer() (myriad.Thawer, error) {
	s, err := o.settings()
	if err != nil {
		return nil, err
	}
	if o.Pull {
		return nil, errors.New("websocket: Options.Thawer: goroutines that wait in Read cannot move, leave Pull out")
	}
	if o.FreezeValue == nil || o.ThawValue == nil {
		return nil,
			errors.New("websocket: Options.Thawer: FreezeValue and ThawValue must be set, or connections have " +
				"no state to move with")
	}
	return (*thawer)(s), nil
}

// A thawer is settings as the engine sees them.
type thawer settings

// Formats implements myriad.Thawer.
func (*thawer) Formats() []string { return []string{frozenFormat} }

// Thaw implements myriad.Thawer.
func (t *thawer) Thaw(nc *myriad.Conn, _ string, state []byte) (myriad.Handler, error) {
	s := (*settings)(t)
	d, err := written.Parse(state, frozenVersion)
	if err != nil {
		return nil, err
	}
	value := d.Need(partValue, written.MaxState)
	subprotocol := d.String(partSubprotocol, math.MaxUint16)
	overflow := Overflow(d.Uint(partOverflow, math.MaxUint8))
	limit := int(d.Uint(partLimit, math.MaxInt32))
	deflate := d.Uint(partDeflate, math.MaxUint8+1)
	windowIn := d.Bytes(partWindowIn, 1<<maxWindowBits)
	windowOut := d.Bytes(partWindowOut, 1<<maxWindowBits)
	silent := int64(d.Uint(partSilent, math.MaxInt32))
	ping := pingState(d.Uint(partPing, uint64(pingsSent)))
	answer := int64(d.Uint(partAnswer, longestAnswer+1))
	refused := d.Bool(partRefused)
	if err = d.Err(); err != nil {
		return nil, err
	}
	terms := deflateTerms{}
	if deflate > 0 {
		if !s.packing.policy.on {
			return nil, errors.New("websocket: the connection is compressed, and Options.Compression is off")
		}
		terms = termsOf(uint8(deflate - 1))
	}
	number := s.number(subprotocol)
	if subprotocol != "" && number == 0 {
		return nil, fmt.Errorf("websocket: the connection speaks %q, which is not among Options.Subprotocols",
			subprotocol)
	}
	c := newConn(s, terms, number)
	c.nc, c.overflow = nc, overflow
	if limit > 0 {
		c.needCold().limit = limit
	}
	if windowIn != nil || windowOut != nil {
		w := c.contexts()
		w.in, w.out = slices.Clone(windowIn), slices.Clone(windowOut) // state is a view of a whole message
	}
	now := c.now()
	c.ping.state, c.ping.mark = ping, now-max(0, silent-1)
	if answer > 0 {
		c.ping.answer, c.ping.answerBy = answerDue, uint32(now+answer-1)
		if refused {
			c.ping.answer = answerRefused
		}
	}
	c.arm(now)
	if err = s.ThawValue(c, value); err != nil {
		return nil, err
	}
	return (*handler[*myriad.Conn])(c), nil
}

// termsOf is what deflateTerms.index has packed.
func termsOf(i uint8) deflateTerms {
	return deflateTerms{agreed: true, inBits: i>>3&7 + minWindowBits, outBits: i&7 + minWindowBits,
		inTakeover: i&(1<<6) != 0, outTakeover: i&(1<<7) != 0}
}

var _ myriad.Freezer = (*handler[*myriad.Conn])(nil)

// Thawer implements myriad.Freezer.
func (h *handler[C]) Thawer() myriad.Thawer {
	s := (*Conn)(h).settings()
	if s.Options == nil || s.FreezeValue == nil || s.ThawValue == nil || s.Pull || s.random != nil {
		return nil
	}
	return (*thawer)(s)
}

// AtRest implements myriad.Freezer.
func (h *handler[C]) AtRest(*myriad.Conn) bool {
	c := (*Conn)(h)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rests()
}

// rests reports whether Freeze can write down all that there is of the connection. It is called
// under mu.
func (c *Conn) rests() bool {
	if c.end.phase() != open || c.reader.part != nil || c.callbacks != nil || c.room != roomOpen ||
		c.ping.state > pingsSent || c.ping.state == pingsQueued || c.ping.answer == answerQueued ||
		c.ping.answer == answerLate {
		return false
	}
	r := c.cold
	return r == nil || r.early == nil && r.pong == nil && r.end == nil && r.reads == nil && r.slow.Empty() &&
		r.late.members == nil && r.parts == partsNone && !r.fin
}

// Freeze implements myriad.Freezer.
func (h *handler[C]) Freeze(_ *myriad.Conn, dst []byte) ([]byte, error) {
	c := (*Conn)(h)
	s, now := c.settings(), c.now()
	value, err := s.FreezeValue(c, nil) // which may write
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	joined := c.joined
	c.mu.Unlock()
	if joined {
		rosterOf(c.nc.Loop()).handOut(c)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.rests() { // any goroutine may have closed it, or asked its peer something
		return nil, errNotAtRest
	}
	e := written.Begin(dst, frozenVersion)
	e.Bytes(partValue, value)
	if c.subprotocol != 0 {
		e.String(partSubprotocol, s.Subprotocols[c.subprotocol-1])
	}
	e.Uint(partOverflow, uint64(c.overflow))
	if r := c.reader.rules; r.compression {
		e.Uint(partDeflate, 1+uint64(r.terms.index()))
	}
	if r := c.cold; r != nil {
		e.Uint(partLimit, uint64(min(max(0, r.limit), math.MaxInt32)))
		if r.windows != nil {
			appendWindow(&e, partWindowIn, r.windows.in)
			appendWindow(&e, partWindowOut, r.windows.out)
		}
	}
	e.Uint(partSilent, uint64(1+min(max(0, now-c.ping.mark), math.MaxInt32-1)))
	e.Uint(partPing, uint64(c.ping.state))
	if left, ok := c.ping.answerLeft(now); ok {
		e.Uint(partAnswer, uint64(1+max(0, left)))
		e.Bool(partRefused, c.ping.answer == answerRefused)
	}
	return e.End(), nil
}

func appendWindow(e *written.Encoder, name string, window []byte) {
	if len(window) > 0 {
		e.Bytes(name, window)
	}
}

// Moved implements myriad.Freezer.
func (h *handler[C]) Moved(*myriad.Conn) { (*Conn)(h).moved() }

// moved is the end of a connection here that goes on in another process.
func (c *Conn) moved() {
	c.reader.release()
	c.mu.Lock()
	c.end.step(vanishes)
	if c.slow() != nil {
		c.slow().End()
	}
	c.strip(errMoved)
	joined := c.joined
	c.mu.Unlock()
	if joined {
		rosterOf(c.nc.Loop()).leave(c)
	}
	if f := c.settings().OnMoved; f != nil {
		f(c)
	}
}
