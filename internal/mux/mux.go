package mux

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad/internal/h2"
	"github.com/myriad-go/myriad/internal/hpack"
)

// A Config is what the connections of a server or a client have in common. Take completes it; it
// must not change after that.
type Config struct {
	// Client is the role.
	Client bool
	// Streams is how many streams the peer may have open at a time. With those whose stream has
	// ended, in order or by a reset, twice as many handlers may run. Beyond either number a stream
	// is refused. 0: 100. A client does not use it.
	Streams int
	// Window is the window of each stream in bytes: how much of a body may wait for its reader. 0:
	// 64 KiB.
	Window int
	// ConnWindow is the window of the connection in bytes: how much may wait in all its streams. 0:
	// 1 MiB, at a client 64 MiB. It is at least an eighth of the windows of Streams streams, so
	// that what their readers have not credited yet cannot use it up.
	ConnWindow int
	// HeaderList is the largest list of fields in bytes, as SETTINGS_MAX_HEADER_LIST_SIZE counts.
	// Beyond it Head.TooLarge is set. A field block that is larger itself ends the connection. 0:
	// 64 KiB.
	HeaderList int
	// Outbox is how many bytes of output wait for each stream before Put fails with flow.ErrFull.
	// 0: 64 KiB.
	Outbox int
	// HeadTimeout bounds the time from the first byte of HEADERS to the end of its field block.
	// Beyond it the connection ends with ENHANCE_YOUR_CALM: no other frame may come in between, so
	// that all its streams wait. 0: no limit.
	HeadTimeout time.Duration
	// Ahead is how many bytes may be queued at the conn. Beyond it data waits in its stream, where
	// something more urgent can still overtake it. 0: 64 KiB.
	Ahead int
	// ReadFrame is the largest frame in bytes that the peer may send. 0: 16 KiB, the least.
	ReadFrame int
	// HeaderTable is the largest dynamic table in bytes that the peer may use for its fields. 0: 4
	// KiB.
	HeaderTable int
	// SendPing is how long the peer may be silent before it gets a PING. Then it has PingTimeout to
	// send something (0: 15 s); beyond, the connection is reset. 0: no PING is sent.
	SendPing, PingTimeout time.Duration
	// WriteStall is how long no byte of queued output may leave; beyond, the connection is reset.
	// 0: no limit.
	WriteStall time.Duration
	// CountError, unless it is nil, is called on the loop with the scope and the code of each error
	// by which this end closes a stream or the connection: "stream_protocol_error".
	CountError func(kind string)
	// Log, unless it is nil, gets the faults of peers.
	Log *Log
	// Connect offers the extended CONNECT of RFC 8441.
	Connect bool
	// Random is the source of a PING's data that the peer must not guess. It is read on a loop.
	// nil: crypto/rand.
	Random io.Reader
	// Now is the clock.
	Now func() time.Time
	// Counters, unless it is nil, counts for all connections.
	Counters *Counters

	limits h2.Limits // of budgets; set by Take
}

// Take has c mean in cfg what net/http gives it, unless it is nil; values that net/http calls
// invalid have no effect. Then Take puts the defaults where cfg has 0, and bounds what is too
// large. MaxEncoderHeaderTableSize holds as it is: the encoder uses no dynamic table.
// StrictMaxConcurrentRequests and PermitProhibitedCipherSuites are the owner's business.
func (cfg *Config) Take(c *http.HTTP2Config) {
	if c != nil {
		if !cfg.Client {
			take(&cfg.Streams, c.MaxConcurrentStreams, 1, math.MaxInt32)
		}
		take(&cfg.Window, c.MaxReceiveBufferPerStream, 1, 4<<20-1)
		take(&cfg.ConnWindow, c.MaxReceiveBufferPerConnection, 64<<10, 4<<20-1)
		take(&cfg.HeaderTable, c.MaxDecoderHeaderTableSize, 1, 4<<20-1)
		take(&cfg.ReadFrame, min(c.MaxReadFrameSize, h2.MaxFrameSize), h2.MinFrameSize, h2.MaxFrameSize)
		cfg.SendPing, cfg.PingTimeout, cfg.WriteStall = c.SendPingTimeout, c.PingTimeout, c.WriteByteTimeout
		cfg.CountError = c.CountError
	}
	connWindow := 1 << 20
	if cfg.Client {
		connWindow = 64 << 20
	}
	cfg.Streams = orDefault(cfg.Streams, 100)
	cfg.Window = min(orDefault(cfg.Window, 64<<10), h2.MaxWindow)
	// A peer has the initial window before it knows of another.
	leastWindow := max(h2.InitialWindow, cfg.Streams*cfg.Window/8)
	cfg.ConnWindow = min(max(orDefault(cfg.ConnWindow, connWindow), leastWindow), h2.MaxWindow)
	cfg.HeaderList = orDefault(cfg.HeaderList, 64<<10)
	cfg.Outbox = orDefault(cfg.Outbox, 64<<10)
	cfg.Ahead = orDefault(cfg.Ahead, 64<<10)
	cfg.ReadFrame = max(cfg.ReadFrame, h2.MinFrameSize)
	cfg.HeaderTable = orDefault(cfg.HeaderTable, hpack.TableSize)
	if cfg.PingTimeout <= 0 {
		cfg.PingTimeout = 15 * time.Second
	}
	if cfg.Random == nil {
		cfg.Random = rand.Reader
	}
	cfg.limits = cfg.budgetLimits()
}

// settings are those that our end announces.
func (cfg *Config) settings() []h2.Setting {
	s := []h2.Setting{
		{ID: h2.InitialWindowSize, Value: uint32(cfg.Window)},
		{ID: h2.MaxHeaderListSize, Value: uint32(cfg.HeaderList)},
	}
	if cfg.ReadFrame != h2.MinFrameSize {
		s = append(s, h2.Setting{ID: h2.MaxFrameSizeSetting, Value: uint32(cfg.ReadFrame)})
	}
	if cfg.HeaderTable != hpack.TableSize {
		s = append(s, h2.Setting{ID: h2.HeaderTableSize, Value: uint32(cfg.HeaderTable)})
	}
	if cfg.Client {
		return append(s, h2.Setting{ID: h2.EnablePush})
	}
	s = append(s, h2.Setting{ID: h2.MaxConcurrentStreams, Value: uint32(cfg.Streams)},
		h2.Setting{ID: h2.NoRFC7540Priorities, Value: 1})
	if cfg.Connect {
		s = append(s, h2.Setting{ID: h2.EnableConnectProtocol, Value: 1})
	}
	return s
}

func take(to *int, n, least, most int) {
	if least <= n && n <= most {
		*to = n
	}
}

func orDefault(n, otherwise int) int {
	if n <= 0 {
		return otherwise
	}
	return n
}

// Counters are statistics. Any goroutine may read them.
type Counters struct {
	Opened     atomic.Int64 // streams
	Refused    atomic.Int64 // streams beyond Config.Streams
	PeerResets atomic.Int64 // RST_STREAM received
	Resets     atomic.Int64 // RST_STREAM sent for something that the peer has done wrong
	ConnErrors atomic.Int64 // GOAWAY sent with an error
	Calmed     atomic.Int64 // those of them that were ENHANCE_YOUR_CALM: the peer has spent a budget
	TooLarge   atomic.Int64 // lists of fields beyond Config.HeaderList
	Paused     atomic.Int64 // times that a connection was not read because its peer read no answers
	Stalled    atomic.Int64 // connections ended because the peer did not read, or answer a PING
}

// An Owner is the protocol of a connection. L.
type Owner interface {
	// Accept makes a stream for a request and calls its Init. nil refuses it with REFUSED_STREAM.
	// Never called at a client.
	Accept(id uint32) *Stream
	// Settings is called after each SETTINGS frame of the peer: a client may be able to Open more
	// streams.
	Settings()
	// GoAway is called when the peer opens or accepts no more streams. Streams above last have
	// ended with RefusedStream by then.
	GoAway(last uint32, code h2.Code)
	// Idle is called when the last stream has ended and been released.
	Idle()
	// Gone is the last call. err is nil if the connection has ended in order.
	Gone(err error)
}

// A FailureOwner is an Owner that is told when its side ends the connection with an error. Its
// streams end behind that. Gone follows, but may wait until the peer has read why. L.
type FailureOwner interface{ Failed() }

// A StreamOwner is one end of a request. L.
type StreamOwner interface {
	// Head is the request, at a client each interim response and the final one. last: it has no
	// body. h and its Fields are valid until Head returns; their strings may be kept. A code other
	// than NoError resets the stream.
	Head(h *h2.Head, last bool) h2.Code
	// Data is a piece of the body, maybe the last. p is valid until return.
	Data(p []byte, last bool)
	// Trailers ends the body. fields are valid until return.
	Trailers(fields []hpack.Field)
	// Credit returns how many bytes of the body have been consumed since the last call, as
	// flow.Inbox.Credit does. It is called after Data and after Stream.Notify.
	Credit() int
	// Room is called after Put has failed with flow.ErrFull, when there is room again. At a client
	// it is also called when the end of the request has left.
	Room()
	// Ended is called once: the stream is closed. err is nil if both sides have ended in order.
	// code is that of RST_STREAM, of either side, or of the connection's end. It is called without
	// Head before if the stream was refused or malformed, never if Accept was not called.
	Ended(code h2.Code, err error)
}

// The limits that need no setting, and what happens at them. Those of budget.go are beside them.
const (
	// maxControls is how many control frames may wait; beyond: the connection is not read until
	// they have left. What was read before is still answered, so that one read buffer of PING comes
	// on top.
	maxControls = 64
	// maxSettings is how many entries a SETTINGS frame may have; beyond: GOAWAY ENHANCE_YOUR_CALM.
	maxSettings = 32
	// maxEarlyPriorities is how many PRIORITY_UPDATE for streams that are not open yet are kept;
	// beyond: they have no effect.
	maxEarlyPriorities = 16
	// keptDebug is how many bytes of a GOAWAY's debug data are kept for errors.
	keptDebug = 1 << 10
	// keptResets is how many streams that we have reset are remembered as such; beyond: all older
	// frames for closed streams are ignored.
	keptResets = 32
	// firstStreams is how many streams a client opens at a time before the server's first SETTINGS.
	// usualStreams is how many it opens after SETTINGS without a limit (section 6.5.2). Both are
	// net/http's.
	firstStreams, usualStreams = 100, 1000
	// handshakeTimeout is how long the peer may take for its preface and SETTINGS, and then a
	// client may be silent before it acknowledges ours; beyond: GOAWAY SETTINGS_TIMEOUT.
	handshakeTimeout = 10 * time.Second
	// endedTimeout is how long the streams may take whose requests are complete when the peer ends
	// its side of the connection; beyond, the connection closes.
	endedTimeout = time.Second
	// drainTimeout is how long Shutdown waits for the answer to its PING.
	drainTimeout = time.Second
	// lastTimeout is how long no byte of the last output may leave; beyond, the connection closes
	// without it.
	lastTimeout = 5 * time.Second
	// dozeAfter is how long an idle connection keeps what it needs for streams.
	dozeAfter = time.Second
)

// The numbers of Conn.Timers that mux uses. An owner's begin at FirstTimer.
const (
	handshakeTimer uint8 = iota // of endedTimeout, too
	drainTimer
	dozeTimer
	headTimer
	FirstTimer
)

// The numbers of timers that are rarely set; up to them an owner has its own. An unset timer takes
// no memory behind the last one that is set.
const (
	pingTimer = FirstTimer + 4 + iota
	stallTimer
)

// ResetByPeer is the reason of the error with which a stream ends that the peer has reset.
const ResetByPeer = "reset by the peer"

var (
	// ErrGoingAway is what Open returns on a connection that takes no more streams.
	ErrGoingAway = errors.New("mux: the connection takes no more streams")
	// ErrStreams is what Open returns when the peer allows no more streams at a time;
	// Owner.Settings and the end of a stream may change that.
	ErrStreams = errors.New("mux: the peer allows no more streams at a time")
	// ErrHeaderList is why a stream ends whose head or trailers are larger than the peer accepts
	// (SETTINGS_MAX_HEADER_LIST_SIZE). They have not been sent. The words are net/http's.
	ErrHeaderList = errors.New("http2: request header list larger than peer's advertised limit")
	// errDone is why nothing can be put into a stream that has ended in order.
	errDone = errors.New("mux: the stream has ended")
	// The errors of a client that net/http has too, in its words.
	errNotProcessed = errors.New("http2: Transport received Server's graceful shutdown GOAWAY")
	errTooLong      = errors.New("net/http: server replied with more than declared Content-Length; truncated")
	errLost         = errors.New("http2: client connection lost")
)

// A goAwayError is why streams of a client end with a connection whose server has sent GOAWAY. The
// words are net/http's.
type goAwayError struct {
	last  uint32
	code  h2.Code
	debug string // what the server has said, up to keptDebug bytes of it
}

func (e *goAwayError) Error() string {
	return fmt.Sprintf("http2: server sent GOAWAY and closed the connection; LastStreamID=%d, ErrCode=%v, debug=%q",
		e.last, e.code, e.debug)
}
