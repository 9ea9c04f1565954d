package webtest

import (
	"bufio"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/myriad-go/myriad/web"
)

// ReadEvent reads the next event, as the HTML Standard, section 9.2.6, has it, but for two things:
// an event without data is returned too if it has an ID or Retry, and lines end with LF or CRLF, as
// web sends them. It returns io.EOF at the end of the stream, and io.ErrUnexpectedEOF inside of an
// event.
func ReadEvent(r *bufio.Reader) (web.Event, error) {
	var e web.Event
	begun := false
	for {
		line, err := r.ReadString('\n')
		switch {
		case err == io.EOF && !begun && line == "":
			return web.Event{}, io.EOF
		case err == io.EOF:
			return web.Event{}, io.ErrUnexpectedEOF
		case err != nil:
			return web.Event{}, err
		}
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if line == "" {
			if begun {
				return e, nil
			}
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		begun = take(&e, name, strings.TrimPrefix(value, " ")) || begun
	}
}

// take sets a field, and reports whether there is one of this name.
func take(e *web.Event, name, value string) bool {
	switch name {
	case "data":
		if e.Data != nil {
			e.Data = append(e.Data, '\n')
		} else {
			e.Data = []byte{}
		}
		e.Data = append(e.Data, value...)
	case "event":
		e.Name = value
	case "id":
		e.ID = value
	case "retry":
		ms, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return false
		}
		e.Retry = time.Duration(ms) * time.Millisecond
	default:
		return false
	}
	return true
}
