package hub

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/server/push/answer"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
	"github.com/myriad-go/myriad/workers"
)

// transports open those that several doors use: a response that does not end, a stream of
// Server-Sent Events in it, and a WebSocket.
type transports struct {
	*node
	pool       *workers.Pool // for commands
	openStream func(w http.ResponseWriter) (ResponseStream, error)
}

// newTransports returns the transports of a node, whose hooks block so many goroutines of the pool.
// openStream is Config.OpenStream.
func newTransports(n *node, hooks int, openStream func(w http.ResponseWriter) (ResponseStream, error)) *transports {
	t := &transports{node: n, openStream: openStream}
	t.pool = workers.New(workers.Config{Workers: commandWorkers + max(hooks, 0), Queue: commandQueue, Logger: n.log})
	if t.openStream == nil {
		t.openStream = t.detach
	}
	return t
}

// Quick commands, which nearly all are, run on the loop. Others run on a pool: a publish to many
// subscribers takes long, and connections of the loop would wait. Commands do not block otherwise,
// so a few goroutines are enough for any number of clients.
const (
	commandWorkers = 16
	commandQueue   = 1 << 20 // connections with pending commands, each once; above it they wait for room
)

// Workers returns the pool that runs slow commands.
func (t *transports) Workers() *workers.Pool { return t.pool }

// WebSocketOptions returns the options of a door's WebSockets, without callbacks.
func (t *transports) WebSocketOptions(subprotocols ...string) *websocket.Options {
	return &websocket.Options{
		Dispatch:     web.DispatchAuto,
		Workers:      t.pool,
		Logger:       t.log,
		Subprotocols: subprotocols,
		CheckOrigin:  func(*http.Request) bool { return true }, // origins.guard has looked already
		MaxMessage:   t.limits.Frame,
		WriteLimit:   t.limits.Queue + QueueSlack,
		Overflow:     websocket.OverflowFail, // push has its own policy for slow clients
		PingInterval: -1,                     // doors have their own pings
		CloseTimeout: t.timing.Close,
	}
}

// AwaitAnswers makes o's sockets AnswerTimers. session returns the session of a connection, nil
// before it has one.
func (t *transports) AwaitAnswers(o *websocket.Options, session func(c *websocket.Conn) *Session) {
	o.AnswerTimeout = t.timing.Pong
	o.OnNoAnswer = func(c *websocket.Conn) {
		if s := session(c); s != nil {
			s.NoAnswer()
		}
	}
}

// Detach begins a response that outlives its handler. For an error see NotDetached.
func (t *transports) Detach(w http.ResponseWriter) (ResponseStream, error) { return t.openStream(w) }

func (t *transports) detach(w http.ResponseWriter) (ResponseStream, error) {
	stream, err := web.Detached(w)
	if err != nil {
		return nil, err
	}
	stream.SetWriteLimit(t.limits.Queue + QueueSlack)
	return webStream{stream}, nil
}

// NotDetached handles a stream that could not be opened: the client has disconnected, or the
// server's program does not use web.Server.
func (t *transports) NotDetached(w http.ResponseWriter, r *http.Request, err error) {
	if !errors.Is(err, web.ErrNotMyriad) {
		t.log.Debug("push: a stream of events was not opened", "remote", r.RemoteAddr, "error", err)
		return
	}
	t.log.Error("push: events need a web.Server: serve push.Server with one", "error", err)
	answer.WriteError(w, http.StatusInternalServerError, answer.ErrInternal.Code, "events cannot be served here")
}

// A StreamTransport is the transport of a client that reads one long response. Its channels may
// send before the head of the response has been sent; it queues that until it is open.
type StreamTransport struct {
	opening atomic.Pointer[opening] // nil after Open
	stream  ResponseStream          // set before opening becomes nil
	Client  *StreamClient           // nil for a client that only reads events
}

// A StreamClient is what a StreamTransport knows of a client that can be told why a response ends.
type StreamClient struct {
	LastMessage func(why answer.Disconnect) []byte
	Secret      string // names the session in requests that belong to it; "": there are none
}

// An opening holds what a StreamTransport receives before it is open.
type opening struct {
	remote string
	mu     sync.Mutex
	sent   []byte             // Session.Offer bounds it, by queued
	reason *answer.Disconnect // of the first Close; nil if Close was not called
}

// NewStreamTransport returns a transport that queues what is sent until Open gives it a response.
// remote is the peer's address. client is nil for a client that only reads events.
func NewStreamTransport(remote string, client *StreamClient) *StreamTransport {
	t := &StreamTransport{Client: client}
	t.opening.Store(&opening{remote: remote})
	return t
}

// Open sends first, then what is queued. Concurrent sends wait, so that their messages follow.
func (t *StreamTransport) Open(stream ResponseStream, first []byte) error {
	o := t.lock()
	defer o.mu.Unlock()
	err := stream.Send(&Message{Payload: append(first, o.sent...)})
	t.stream = stream
	if o.reason != nil {
		t.end(*o.reason)
	}
	t.opening.Store(nil)
	return err
}

// lock returns the opening, locked, or nil if t is open.
func (t *StreamTransport) lock() *opening {
	o := t.opening.Load()
	if o == nil {
		return nil
	}
	o.mu.Lock()
	if t.opening.Load() == nil { // opened meanwhile
		o.mu.Unlock()
		return nil
	}
	return o
}

// Send implements Transport.
func (t *StreamTransport) Send(m *Message) error {
	if o := t.lock(); o != nil {
		defer o.mu.Unlock()
		o.sent = append(o.sent, m.Payload...)
		return nil
	}
	return t.stream.Send(m)
}

// Queued implements Transport.
func (t *StreamTransport) Queued() int {
	if o := t.lock(); o != nil {
		defer o.mu.Unlock()
		return len(o.sent)
	}
	return t.stream.Queued()
}

// Remote implements Transport.
func (t *StreamTransport) Remote() string {
	if o := t.lock(); o != nil {
		o.mu.Unlock()
		return o.remote
	}
	return t.stream.Remote()
}

// Close implements Transport.
func (t *StreamTransport) Close(why answer.Disconnect) {
	o := t.lock()
	if o == nil {
		t.end(why)
		return
	}
	defer o.mu.Unlock()
	if o.reason == nil {
		o.reason = &why
	}
}

// end sends the last message, if there is room for it, and closes the stream.
func (t *StreamTransport) end(why answer.Disconnect) {
	if t.Client != nil && why != answer.DisconnectSlow {
		_ = t.stream.Send(&Message{Payload: t.Client.LastMessage(why)}) // without room, the end has no reason
	}
	t.stream.Close(why)
}

// A ResponseStream carries a StreamTransport's messages after the head has been sent. OnClose sets
// f, which is called once when the stream has ended. OnClose itself may call f; the other methods
// do not.
type ResponseStream interface {
	Transport
	OnClose(f func())
}

// StreamOf returns a response that outlives its handler as doors have it.
func StreamOf(s *web.Stream) ResponseStream { return webStream{s} }

// A webStream writes to a detached response.
type webStream struct{ *web.Stream }

func (t webStream) Send(m *Message) error {
	if chunk, ok := m.Shared.(*web.Chunk); ok {
		return QueueError(t.Stream.WriteChunk(chunk))
	}
	_, err := t.Stream.Write(m.Payload)
	return QueueError(err)
}

func (t webStream) Queued() int { return t.Stream.Queued() }

func (t webStream) Remote() string { return t.Stream.RemoteAddr().String() }

// Close ends the stream. The end of a response has no reason.
func (t webStream) Close(why answer.Disconnect) {
	if why == answer.DisconnectSlow {
		t.Stream.Abort(why)
		return
	}
	t.Stream.Close()
}

func (t webStream) OnClose(f func()) { t.Stream.OnClose(func(error) { f() }) }

// QueueError turns the engine's queue-full error into ErrQueueFull.
func QueueError(err error) error {
	if errors.Is(err, myriad.ErrFull) {
		return ErrQueueFull
	}
	return err
}

// A TextSocket is the transport of a client by WebSocket whose messages are text.
type TextSocket struct{ *websocket.Conn }

// Send implements Transport.
func (t TextSocket) Send(m *Message) error { return sendFrame(t.Conn, websocket.OpText, m) }

// Queued implements Transport.
func (t TextSocket) Queued() int { return t.Conn.Queued() }

// Remote implements Transport.
func (t TextSocket) Remote() string { return t.RemoteAddr().String() }

// Close queues a close frame, even above the limit, so that a slow client receives the reason. The
// engine drops the connection of a client that does not answer within Timing.Close.
func (t TextSocket) Close(why answer.Disconnect) {
	t.Conn.Close(websocket.StatusCode(why.Code), why.Reason)
}

// A BinarySocket is the transport of a client by WebSocket whose messages are binary.
type BinarySocket struct{ TextSocket }

// Send implements Transport.
func (t BinarySocket) Send(m *Message) error { return sendFrame(t.Conn, websocket.OpBinary, m) }

func sendFrame(c *websocket.Conn, op websocket.Op, m *Message) error {
	if prepared, ok := m.Shared.(*websocket.Prepared); ok {
		return QueueError(c.WritePrepared(prepared))
	}
	return QueueError(c.Write(op, m.Payload))
}

// PrepareMessage returns the shared form of a WebSocket message.
func PrepareMessage(op websocket.Op, payload []byte) Shared {
	m, err := websocket.Prepare(op, payload)
	if err != nil {
		panic("push: a message is larger than every limit allows: " + err.Error())
	}
	return m
}
