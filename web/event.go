package web

import (
	"bytes"
	"errors"
	"fmt"
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
