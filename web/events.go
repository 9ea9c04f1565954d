package web

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// An Event is one server-sent event, as the HTML Standard, section 9.2, has it.
//
// https://html.spec.whatwg.org/multipage/server-sent-events.html
type Event struct {
	// ID is what a client that comes back sends as Last-Event-ID. Empty: the one before stays.
	ID string
	// Name is the type of the event, for addEventListener. Empty: "message".
	Name string
	// Data may have several lines, divided by LF, CRLF or CR; the client gets them divided by LF.
	// An Event without Data and Name sets ID or Retry and is not dispatched.
	Data []byte
	// Retry is how long the client waits before it comes back, in whole milliseconds. 0: as before.
	Retry time.Duration
}

// Append appends e as it is sent. It fails if ID or Name has a line break or NUL, which would let
// the program's users write fields, and if Retry is negative. Any goroutine.
func (e Event) Append(dst []byte) ([]byte, error) {
	switch {
	case strings.ContainsAny(e.Name, "\r\n\x00"):
		return dst, fmt.Errorf("web: an event's Name is %q: it must be one line without NUL", e.Name)
	case strings.ContainsAny(e.ID, "\r\n\x00"):
		return dst, fmt.Errorf("web: an event's ID is %q: it must be one line without NUL", e.ID)
	case e.Retry < 0:
		return dst, fmt.Errorf("web: an event's Retry is %v: it must not be negative", e.Retry)
	case e.ID == "" && e.Name == "" && e.Data == nil && e.Retry < time.Millisecond:
		return dst, errors.New("web: an event without ID, Name, Data and Retry: use Comment to keep a connection alive")
	}
	if e.ID != "" {
		dst = append(append(append(dst, "id: "...), e.ID...), '\n')
	}
	if e.Name != "" {
		dst = append(append(append(dst, "event: "...), e.Name...), '\n')
	}
	if e.Retry >= time.Millisecond {
		dst = append(strconv.AppendInt(append(dst, "retry: "...), e.Retry.Milliseconds(), 10), '\n')
	}
	if e.Data != nil || e.Name != "" {
		dst = appendLines(dst, "data: ", e.Data)
	}
	return append(dst, '\n'), nil
}

// Chunk encodes e once for any number of EventStreams. It fails as Append does.
func (e Event) Chunk() (*Chunk, error) {
	p, err := e.Append(make([]byte, 0, e.room()))
	if err != nil {
		return nil, err
	}
	return NewChunk(p), nil
}

// room is what an event of one line takes.
func (e Event) room() int { return len(e.ID) + len(e.Name) + len(e.Data) + 64 }

// appendLines appends each line of p behind prefix. A line ends with LF, CRLF or CR, as where the
// client reads.
func appendLines(dst []byte, prefix string, p []byte) []byte {
	for {
		dst = append(dst, prefix...)
		i := bytes.IndexAny(p, "\r\n")
		if i < 0 {
			return append(append(dst, p...), '\n')
		}
		dst = append(append(dst, p[:i]...), '\n')
		if bytes.HasPrefix(p[i:], []byte("\r\n")) {
			i++
		}
		p = p[i+1:]
	}
}

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
