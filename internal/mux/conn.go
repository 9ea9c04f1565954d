package mux

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
)

// A Conn is an HTTP/2 connection. It is a myriad.Handler, with all optional methods but Truncated,
// and is meant to be embedded in its owner. Init makes it ready for Opened. All of it is the
// loop's, but for asks.
type Conn struct {
	c     *myriad.Conn
	cfg   *Config
	owner Owner
	act   *active
	table string // the decoder's, packed, while act is nil; "": it is empty

	// Timers are all timers of the conn; the owner's numbers begin at FirstTimer. L.
	Timers myriad.Timers

	window  window
	peer    peer
	last    uint32 // highest stream that has been opened; at a server that is draining, of those that it serves
	places  places
	ignored uint32 // closed streams up to this one may have been reset by us; active.resets has the later ones
	budgets budgets
	health  health

	state      connState
	dozes      bool // dozeTimer is set
	lingers    bool // drainTimer is set for the last output
	inCallback bool // output leaves when the callback ends

	asks asks
}

// A connState is how far the connection is on its way to its end. It never goes back.
//
//	state     | reached by                    | streams of the peer      | the connection
//	serving   | Init                          | are taken                | stays
//	announced | Shutdown of a server          | are taken, until the PING behind GOAWAY is answered
//	draining  | its answer, or drainTimer;    | are ignored: GOAWAY has  | closes when those are over
//	          | Shutdown of a client          | named the last one       | that were taken
//	failed    | fail, Closed                  | are ignored, as all else | closes when GOAWAY has left
type connState uint8

const (
	serving connState = iota
	announced
	draining
	failed
)

// A handshake is what the peer has still to send before the connection is as both sides want it.
type handshake uint8

const (
	awaitsPreface  handshake = iota // at a server
	awaitsSettings                  // the peer's first frame
	awaitsAck                       // of our SETTINGS
	handshakeDone
)

// A peer is what the other end has said of itself.
type peer struct {
	window  int32     // initial one of streams
	streams uint32    // at a time that a server allows
	list    uint32    // largest list of fields that it accepts
	state   peerState // only rises
	awaited handshake
	connect bool // it offers the extended CONNECT
	forgets bool // its decoder frees its table by the size update with which our next field block begins
}

type peerState uint8

const (
	peerOpen     peerState = iota
	peerGoesAway           // its GOAWAY has come
	peerEnded              // its FIN has come
)

// places are how many streams have one.
type places struct {
	count int32 // of all: open, or ended and not released
	ended int32 // of these, the streams that have ended and are not released
}

// A window is what may be sent in one direction without another WINDOW_UPDATE, for a stream or for
// the whole connection. That it is negative may be the peer's right (RFC 9113 section 6.9.2).
type window struct {
	send int32 // the peer's for us
	recv int32 // ours for the peer
	owed int32 // consumed, and not yet in a WINDOW_UPDATE
}

// grant is how much a WINDOW_UPDATE is to grant the peer: what has been consumed, when it is worth
// a frame.
func (w *window) grant(worth int) (n int) {
	if w.owed == 0 || int(w.owed) < worth {
		return 0
	}
	n = int(w.owed)
	w.recv += w.owed
	w.owed = 0
	return n
}

// drainPing is the data of the PING of Shutdown.
var drainPing = [8]byte{'m', 'y', 'r', 'i', 'a', 'd', 0, 1}

// Init gives a connection its owner. Take has completed cfg.
func (c *Conn) Init(cfg *Config, owner Owner) {
	if cfg.limits == (h2.Limits{}) {
		panic("mux: Config.Take was not called")
	}
	c.cfg, c.owner = cfg, owner
	c.window = window{send: h2.InitialWindow, recv: h2.InitialWindow}
	c.peer = peer{window: h2.InitialWindow, streams: firstStreams, list: math.MaxUint32, forgets: true}
}

// Conn is the connection below; nil before Opened.
func (c *Conn) Conn() *myriad.Conn { return c.c }

// Opened implements myriad.Handler. Our SETTINGS come first (RFC 9113 section 3.4).
func (c *Conn) Opened(nc *myriad.Conn) {
	defer c.leave(c.enter())
	c.c = nc
	nc.SetWriteLimit(c.cfg.Ahead)
	a, cfg := c.wake(), c.cfg
	if cfg.Client {
		c.peer.awaited = awaitsSettings
		a.control = append(a.control, h2.Preface...)
	}
	a.control = h2.AppendSettings(a.control, cfg.settings()...)
	c.window.recv = int32(cfg.ConnWindow)
	if by := cfg.ConnWindow - h2.InitialWindow; by > 0 {
		a.control = h2.AppendWindowUpdate(a.control, 0, by)
	}
	c.Timers.Set(nc, handshakeTimer, handshakeTimeout)
	c.budgets.begin(cfg)
	if cfg.SendPing > 0 {
		c.health.heardNow(cfg)
		c.Timers.Set(nc, pingTimer, cfg.SendPing)
	}
}

// Ended implements myriad.Ender: the peer sends no more. Requests that are complete have
// endedTimeout to be answered. Most peers have closed the connection, which looks the same from
// here, and could not open another window.
func (c *Conn) Ended(*myriad.Conn) {
	defer c.leave(c.enter())
	c.peer.state = peerEnded
	for _, s := range c.open() {
		if s.state < halfClosedRemote {
			s.close(h2.Cancel, c.endedBy(io.ErrUnexpectedEOF))
		}
	}
	c.wake().dropPartial()
	c.Timers.Set(c.c, handshakeTimer, endedTimeout)
}

// Drained implements myriad.Drainer.
func (c *Conn) Drained(*myriad.Conn) { c.leave(c.enter()) }

// Notified implements myriad.Notified: streams have asked for something.
func (c *Conn) Notified(*myriad.Conn) {
	defer c.leave(c.enter())
	c.answerAsks()
}

func (c *Conn) answerAsks() {
	for {
		s, what, code := c.asks.next()
		if s == nil {
			return
		}
		if what&askCredit != 0 && s.state != closed {
			c.credit(s, s.owner.Credit())
		}
		if what&askOutput != 0 {
			c.enqueue(s)
		}
		if what&askReset != 0 && s.state != closed {
			c.flush()
		}
		if what&askReset != 0 && s.state != closed {
			s.reset(code, streamError(s.id, code, "cancelled"))
		}
		if what&askRelease != 0 {
			s.released()
		}
	}
}

// Expired implements myriad.Timed for a connection whose owner has no timers.
func (c *Conn) Expired(nc *myriad.Conn) {
	for number := range c.Timers.Expired(nc) {
		c.TimerExpired(number)
	}
}

// TimerExpired does what is due by a timer below FirstTimer.
func (c *Conn) TimerExpired(number uint8) {
	defer c.leave(c.enter())
	switch number {
	case handshakeTimer: // section 6.5.3
		if c.peer.state == peerEnded {
			_ = c.c.Close()
			return
		}
		if c.peer.awaited > awaitsSettings && c.health.heardMore { // the ACK waits behind what a slow uplink carries
			c.health.heardMore = false
			c.Timers.Set(c.c, handshakeTimer, handshakeTimeout)
			return
		}
		c.fail(h2.SettingsTimeout, "the preface or the acknowledgement of SETTINGS did not come in time", nil)
	case drainTimer:
		if !c.lingers {
			c.nameLast()
			return
		}
		c.lingers = false
		if c.places.count == 0 && c.act != nil && int32(c.hasLeft()-c.act.watchedAt) <= 0 {
			c.countStall()
			_ = c.c.Close() // what has been encoded is dropped
		}
	case headTimer:
		if c.act != nil {
			c.act.headTimed = false
		}
		c.fail(h2.EnhanceYourCalm, "a field block did not come in time", nil)
	case pingTimer:
		left := c.cfg.SendPing - c.health.silent(c.cfg)
		switch {
		case c.health.ping == healthOut:
			c.countStall()
			if c.cfg.Client {
				c.c.Abort(errLost)
			} else {
				c.c.Abort(errSilent)
			}
		case left > 0:
			c.Timers.Set(c.c, pingTimer, left)
		default:
			c.sendPing(healthOut)
			c.Timers.Set(c.c, pingTimer, c.cfg.PingTimeout)
		}
	case stallTimer:
		if c.act == nil {
			return
		}
		c.act.watched = false
		if c.c.Queued() > 0 && int32(c.hasLeft()-c.act.watchedAt) <= 0 {
			c.countStall()
			c.c.Abort(errStalled)
		}
	case dozeTimer:
		c.dozes = false
		if c.act != nil && c.places.count == 0 && !c.act.sending() && !c.act.receiving() && !c.act.watched &&
			c.health.ping == noPing {
			c.doze()
		}
	}
}

// Stopping implements myriad.Stopper.
func (c *Conn) Stopping(*myriad.Conn) { c.Shutdown() }

// Closed implements myriad.Handler.
func (c *Conn) Closed(_ *myriad.Conn, err error) {
	outermost := c.enter()
	c.state = failed
	cause := c.endedBy(err)
	for _, s := range c.open() {
		s.close(h2.Cancel, cause)
	}
	c.answerAsks()
	c.asks.close()
	if c.act != nil {
		c.act.free()
		c.act = nil
	}
	c.table, c.health = "", health{}
	c.owner.Gone(err)
	if outermost {
		c.inCallback = false
	}
}

// endedBy is why streams end with the connection, which has ended with err: a server that has said
// GOAWAY may close or reset it.
func (c *Conn) endedBy(err error) error {
	_, system := err.(syscall.Errno)
	switch {
	case (err == nil || err == io.ErrUnexpectedEOF || system) && c.act != nil && c.act.away != nil:
		return c.act.away
	case err == nil:
		return io.ErrUnexpectedEOF
	}
	return err
}

// Shutdown lets the streams end that the peer has opened, takes no more, and closes the connection
// then. A server first says so, and names the last stream when the peer knows it, so that no
// request under way is lost (section 6.8). L.
func (c *Conn) Shutdown() {
	if c.state != serving {
		return
	}
	defer c.leave(c.enter())
	c.state = announced
	if c.cfg.Client || c.peer.awaited <= awaitsSettings {
		c.nameLast()
		return
	}
	a := c.wake()
	a.control = h2.AppendGoAway(a.control, 1<<31-1, h2.NoError, "")
	a.control = h2.AppendPing(a.control, drainPing, false)
	c.Timers.Set(c.c, drainTimer, drainTimeout)
}

// nameLast names the last stream that is answered.
func (c *Conn) nameLast() {
	if c.state >= draining {
		return
	}
	defer c.leave(c.enter())
	c.state = draining
	c.Timers.Set(c.c, drainTimer, 0)
	a := c.wake()
	a.control = h2.AppendGoAway(a.control, c.lastOfPeer(), h2.NoError, "")
}

// lastOfPeer is the peer's last stream that our end has served (section 6.8). A server opens none.
func (c *Conn) lastOfPeer() uint32 {
	if c.cfg.Client {
		return 0
	}
	return c.last
}

// Abort ends the connection and all its streams with a code. L.
func (c *Conn) Abort(code h2.Code, reason string) {
	defer c.leave(c.enter())
	c.fail(code, reason, nil)
}

// fail ends the connection: GOAWAY says why, what was encoded before it still leaves.
func (c *Conn) fail(code h2.Code, reason string, cause error) {
	if c.state == failed {
		return
	}
	c.state = failed
	if cause == nil {
		cause = &h2.Error{Code: code, Reason: reason}
	}
	c.countError("conn_", code)
	if code != h2.NoError {
		c.report(0, code, reason)
	}
	if n := c.cfg.Counters; n != nil {
		n.ConnErrors.Add(1)
		if code == h2.EnhanceYourCalm {
			n.Calmed.Add(1)
		}
	}
	a := c.wake()
	a.control = h2.AppendGoAway(a.control, c.lastOfPeer(), code, reason)
	if owner, ok := c.owner.(FailureOwner); ok {
		owner.Failed()
	}
	for _, s := range c.open() {
		s.close(code, cause)
	}
}

// enter begins a callback, and leave ends it if it is not part of another one.
func (c *Conn) enter() (outermost bool) {
	outermost = !c.inCallback
	c.inCallback = true
	return outermost
}

// leave writes the output. A connection without work closes, or may doze.
func (c *Conn) leave(outermost bool) {
	if !outermost {
		return
	}
	c.flush()
	a := c.act
	if c.cfg.WriteStall > 0 && a != nil && !a.watched && c.c.Queued() > 0 {
		a.watched, a.watchedAt = true, c.hasLeft()
		c.Timers.Set(c.c, stallTimer, c.cfg.WriteStall)
	}
	c.inCallback = false
	over := c.peer.state == peerEnded || c.state == draining // what is incomplete is of no interest any more
	switch {
	case c.state == failed:
		_ = c.c.Close()
	case c.places.count > 0:
	case a != nil && a.sending():
		if over && !c.lingers { // the last output waits for a peer that does not read
			c.lingers, a.watchedAt = true, c.hasLeft()
			c.Timers.Set(c.c, drainTimer, lastTimeout)
		}
	case over || c.peer.state == peerGoesAway && (a == nil || !a.receiving()):
		_ = c.c.Close()
	case a != nil && !a.receiving() && !c.dozes:
		c.dozes = true
		c.Timers.Set(c.c, dozeTimer, dozeAfter)
	}
}

// wake gives the connection its active part.
func (c *Conn) wake() *active {
	if c.act != nil {
		return c.act
	}
	a := actives.Get().(*active)
	c.act = a
	if c.table == "" {
		a.decoder.Reset()
	} else {
		a.scratch = append(a.scratch[:0], c.table...)
		a.decoder.Unpack(a.scratch)
		c.table = ""
	}
	c.limitTable()
	return a
}

// limitTable has the decoder hold the peer to our setting, a smaller one when the peer has
// acknowledged it.
func (c *Conn) limitTable() {
	if n := c.cfg.HeaderTable; n > hpack.TableSize || c.peer.awaited == handshakeDone {
		c.act.decoder.Limit(n)
	} else {
		c.act.decoder.Limit(hpack.TableSize)
	}
}

// doze gives the active part back. The streams that were reset cannot be told from others any more:
// what still comes for them is ignored.
func (c *Conn) doze() {
	a := c.act
	if len(a.resets) > 0 {
		c.ignored = max(c.ignored, slices.Max(a.resets))
	}
	if !a.decoder.Empty() {
		a.scratch = a.decoder.Pack(a.scratch[:0])
		c.table = string(a.scratch)
	}
	c.act = nil
	a.free()
}

// open lists the streams that have not ended: those whose heads are not written, then the others in
// the order of their numbers.
func (c *Conn) open() (all []*Stream) {
	if c.act == nil {
		return nil
	}
	all = append(all, c.act.opening...)
	for _, s := range c.act.streams {
		all = append(all, s)
	}
	slices.SortFunc(all[len(c.act.opening):], func(a, b *Stream) int { return int(int64(a.id) - int64(b.id)) })
	return all
}

// Open begins a stream; its owner puts the head then. It fails with ErrGoingAway if GoingAway says
// so, and else with ErrStreams if Free is 0. L, at a client, after Opened.
func (c *Conn) Open(s *Stream) error {
	switch {
	case c.GoingAway():
		return ErrGoingAway
	case c.Free() == 0:
		return ErrStreams
	}
	a := c.wake()
	s.begin(c, 0)
	a.opening = append(a.opening, s)
	return nil
}

// Free is how many streams Open can begin now: what the peer's SETTINGS_MAX_CONCURRENT_STREAMS
// leaves. It is 0 if the connection is going away. L, at a client.
func (c *Conn) Free() int {
	if c.GoingAway() {
		return 0
	}
	left := int64(c.peer.streams)
	if a := c.act; a != nil {
		left -= int64(len(a.streams) + len(a.opening))
	}
	return int(max(0, min(left, int64(c.idsLeft()))))
}

// Barred reports whether the peer of a client allows no stream, and none is open. Streams may wait
// for their heads to leave. L.
func (c *Conn) Barred() bool {
	return c.peer.awaited > awaitsSettings && c.peer.streams == 0 && (c.act == nil || len(c.act.streams) == 0)
}

// Withdraw ends the streams of a client whose heads have not left, which the peer has not processed
// therefore. L.
func (c *Conn) Withdraw() {
	if c.act == nil {
		return
	}
	defer c.leave(c.enter())
	for _, s := range slices.Clone(c.act.opening) {
		s.close(h2.RefusedStream, &h2.Error{Code: h2.RefusedStream, Reason: "not sent: the server allows no stream"})
	}
}

// GoingAway reports whether the connection takes no more streams. The peer has sent GOAWAY or its
// FIN, Shutdown was called, an error ends the connection, or a client has no numbers for streams
// left. L.
func (c *Conn) GoingAway() bool {
	return c.state != serving || c.peer.state != peerOpen || c.cfg.Client && c.idsLeft() == 0
}

// idsLeft is how many streams a client can still number (section 5.1.1).
func (c *Conn) idsLeft() int {
	left := (1<<31 - 1 - int(c.last)) / 2
	if c.act != nil {
		left -= len(c.act.opening)
	}
	return left
}

// allowed reports whether the peer's limit has room for another stream of ours. Open has seen to
// it, but the limit may have fallen since, before the stream's head leaves.
func (c *Conn) allowed() bool { return len(c.act.streams) < int(c.peer.streams) }

// openAllowed lets heads leave that have waited for room.
func (c *Conn) openAllowed() {
	if c.act == nil || !c.cfg.Client || !c.allowed() {
		return
	}
	for _, s := range c.act.opening {
		c.enqueue(s)
	}
}

// sendReset resets a stream.
func (c *Conn) sendReset(id uint32, code h2.Code) {
	a := c.act
	a.control = h2.AppendReset(a.control, id, code)
	a.controls++
	if len(a.resets) == keptResets {
		c.ignored = max(c.ignored, a.resets[0])
		a.resets = append(a.resets[:0], a.resets[1:]...)
	}
	a.resets = append(a.resets, id)
}

// wasReset reports whether we have reset a stream that is closed, or may have, or have not served
// it.
func (c *Conn) wasReset(id uint32) bool {
	return id <= c.ignored || slices.Contains(c.act.resets, id) || c.state == draining && (c.cfg.Client || id > c.last)
}

// resetFor resets a stream for an error, open or not, and tells of it.
func (c *Conn) resetFor(e *h2.Error) {
	c.countError("stream_", e.Code)
	c.report(e.Stream, e.Code, e.Reason)
	if n := c.cfg.Counters; n != nil {
		n.Resets.Add(1)
	}
	if s := c.act.streams[e.Stream]; s != nil {
		s.reset(e.Code, e)
	} else if !slices.Contains(c.act.resets, e.Stream) { // one RST_STREAM is enough
		c.sendReset(e.Stream, e.Code)
	}
}

// countError tells Config.CountError of an error.
func (c *Conn) countError(scope string, code h2.Code) {
	if f := c.cfg.CountError; f != nil && code != h2.NoError {
		f(scope + strings.ToLower(code.String()))
	}
}

// report tells Config.Log of a fault.
func (c *Conn) report(stream uint32, code h2.Code, reason string) {
	if l := c.cfg.Log; l != nil && c.c != nil {
		l.add(c.cfg.Now(), c.c, Fault{Stream: stream, Code: code, Reason: reason})
	}
}

func (c *Conn) countStall() {
	if n := c.cfg.Counters; n != nil {
		n.Stalled.Add(1)
	}
}

// Streams is how many streams are open, or ended and not released. L.
func (c *Conn) Streams() int { return int(c.places.count) }

// PeerConnect reports whether the peer offers the extended CONNECT. L.
func (c *Conn) PeerConnect() bool { return c.peer.connect }

// PeerHeaderList is the largest list of fields in bytes that the peer accepts, as h2.ListSize
// counts it; math.MaxUint32 if it has not said. A larger head or trailer fails its stream. L.
func (c *Conn) PeerHeaderList() int64 { return int64(c.peer.list) }

// Ready reports whether the peer's SETTINGS have come. L.
func (c *Conn) Ready() bool { return c.peer.awaited > awaitsSettings }

// Probe asks the peer for a sign of life: it sends a PING, unless one is out. A client that gives
// up a request of which nothing has come back calls it, and so sends the PING together with
// RST_STREAM. Servers of gRPC end connections that send more than two PINGs while no HEADERS or
// DATA comes from them; so Probe sends two at most and then does nothing. L, after Opened.
func (c *Conn) Probe() {
	h := &c.health
	if c.c == nil || c.state == failed || c.peer.state == peerEnded || h.ping != noPing || h.probes == mostProbes {
		return
	}
	defer c.leave(c.enter())
	if h.probes++; h.probes == mostProbes {
		h.heard = uint32(c.cfg.Now().UnixMilli())
	}
	c.sendPing(probeOut)
}

// sendPing sends a PING, whose answer, as anything else that comes, ends Unanswered.
func (c *Conn) sendPing(p pingState) {
	a := c.wake()
	a.control = h2.AppendPing(a.control, healthPing, false)
	if c.health.ping == noPing {
		a.pinged = uint32(c.cfg.Now().UnixMilli())
	}
	c.health.ping = p
}

// Unanswered is how long a PING of Probe or Config.SendPing has been out while not one byte came
// from the peer, to the millisecond and at least one. 0: nothing is unanswered. L.
func (c *Conn) Unanswered() time.Duration {
	if c.health.ping == noPing || c.act == nil {
		return 0
	}
	return max(1, time.Duration(uint32(c.cfg.Now().UnixMilli())-c.act.pinged)) * time.Millisecond
}

// Silent is how long nothing has come from the peer, if Probe may not ask it any more; else 0. L.
func (c *Conn) Silent() time.Duration {
	if c.health.probes < mostProbes || c.health.ping != noPing {
		return 0
	}
	return c.health.silent(c.cfg)
}

// Below is how a peer is found gone although its connection is not: Config.SendPing and Conn.Probe.
// Without them nothing is set and nothing is kept.

var (
	errSilent  = errors.New("mux: the peer has not answered a PING in time")
	errStalled = fmt.Errorf("mux: the peer takes no output: %w", os.ErrDeadlineExceeded)
)

// healthPing is the data of a PING of Config.SendPing, and of Probe.
var healthPing = [8]byte{'m', 'y', 'r', 'i', 'a', 'd', 0, 2}

// health is what a connection knows of its peer's life.
type health struct {
	heard     uint32 // when the peer has sent something, in ms; with Config.SendPing, or behind mostProbes
	ping      pingState
	probes    uint8 // PINGs of Probe since HEADERS or DATA came
	heardMore bool  // something has come behind SETTINGS since handshakeTimer was set
}

// A pingState is the PING that is out. Whatever the peer sends ends it.
type pingState uint8

const (
	noPing    pingState = iota
	probeOut            // by Probe, when none was out
	healthOut           // by Config.SendPing, whether or not one of Probe was out
)

// mostProbes is how many PINGs Probe sends while no HEADERS or DATA comes.
const mostProbes = 2

// heardNow notes that the peer has sent something.
func (h *health) heardNow(cfg *Config) {
	h.ping, h.heardMore = noPing, true
	if cfg.SendPing > 0 || h.probes == mostProbes {
		h.heard = uint32(cfg.Now().UnixMilli())
	}
}

// silent is how long the peer has sent nothing.
func (h *health) silent(cfg *Config) time.Duration {
	return time.Duration(uint32(cfg.Now().UnixMilli())-h.heard) * time.Millisecond
}
