package web

import (
	"net/http"
	"time"
)

// DefaultKeepAlive is after how much silence an EventStream sends a comment: what the HTML
// Standard, section 9.2.7, recommends against proxies that end silent connections.
const DefaultKeepAlive = 15 * time.Second

// An EventStream is a response of server-sent events that has outlived its handler. It holds no
// goroutine. Write of the embedded Stream, and WriteChunk, take events that are encoded already.
// All methods may be called from any goroutine and none blocks.
//
// What a client has not read waits, up to the limit of SetWriteLimit, or the engine's
// Config.WriteLimit. Above it Send fails with myriad.ErrFull and takes nothing. The program then
// drops the event, or ends the stream with Abort and has the client come back with its LastEventID;
// OnDrained tells when there is room.
type EventStream struct {
	*Stream
	lastID string
}

// Events answers r with a stream of events, which lives on when the handler has returned, until
// Close or until the client leaves (OnClose). It sets Content-Type, and unless the handler has set
// them, Cache-Control: no-cache and X-Accel-Buffering: no, which makes nginx forward each event at
// once. Its Context has the values of r's context (ValuesOf). It fails as Detached does.
//
// A browser's EventSource comes back when the stream ends. Answer 204 instead of calling Events to
// have it stay away.
func Events(w http.ResponseWriter, r *http.Request) (*EventStream, error) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	setUnlessSet(h, "Cache-Control", "no-cache")
	setUnlessSet(h, "X-Accel-Buffering", "no")
	s, err := Detached(w)
	if err != nil {
		return nil, err
	}
	s.KeepValues(r)
	e := &EventStream{s, r.Header.Get("Last-Event-ID")}
	e.SetKeepAlive(DefaultKeepAlive)
	return e, nil
}

func setUnlessSet(h http.Header, name, value string) {
	if _, ok := h[name]; !ok {
		h.Set(name, value)
	}
}

// LastEventID is the ID of the last event that the client has had of an earlier stream, or "". It
// comes from the client: it may be anything.
func (s *EventStream) LastEventID() string { return s.lastID }

// Send queues an event, all of it or nothing. It fails as Event.Append does, with myriad.ErrFull
// while the client reads too slowly, and with myriad.ErrClosed when the stream has ended.
func (s *EventStream) Send(e Event) error {
	p, err := e.Append(make([]byte, 0, e.room()))
	if err == nil {
		_, err = s.Write(p)
	}
	return err
}

// Comment queues lines that clients ignore. It fails as Send does.
func (s *EventStream) Comment(text string) error {
	_, err := s.Write(append(appendLines(nil, ": ", []byte(text)), '\n'))
	return err
}

// SetKeepAlive sends an empty comment when the stream has been silent for d, at the latest after
// twice that, unless the client has something to read. It counts in milliseconds, up to 49 days. 0
// or less: none is sent.
func (s *EventStream) SetKeepAlive(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beat = uint32(min(max(d.Milliseconds(), 0), 1<<32-1))
	if !s.over {
		s.sink.notify() // the loop sets the timer
	}
}

// keepAlive is an empty comment.
var keepAlive = []byte(":\n\n")

// rearm sets the timer if the stream's keep-alive has changed. On the loop; s.mu is held.
func (s *Stream) rearm(setTimer func(time.Duration)) {
	if s.beat != s.armed {
		s.armed = s.beat
		setTimer(time.Duration(s.beat) * time.Millisecond)
	}
}

// beats keeps a silent stream alive. It reports false if the timer was not set for that. On the
// loop.
func (s *Stream) beats(setTimer func(time.Duration)) bool {
	s.mu.Lock()
	armed, silent := s.armed, !s.wrote
	s.armed = 0
	s.mu.Unlock()
	if armed == 0 {
		return false
	}
	if silent && s.sink.queued() == 0 {
		_, _ = s.Write(keepAlive) // a stream that is over takes none: its end is on its way
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrote = false
	if !s.over {
		s.rearm(setTimer)
	}
	return true
}
