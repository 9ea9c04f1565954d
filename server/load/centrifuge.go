package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/myriad-go/myriad/websocket"
)

// The numbers of a subscriber's two commands.
const (
	connectID   = 1
	subscribeID = 2
)

// These begin what a server of the Centrifuge protocol sends. It may send several on lines of their
// own.
var (
	newline   = []byte("\n")
	pingLine  = []byte("{}")
	offsetKey = []byte(`"offset":`)
)

// A centrifugeReply is the answer to one of the two commands.
type centrifugeReply struct {
	ID    int `json:"id"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	Subscribe *struct {
		Epoch  string `json:"epoch"`
		Offset uint64 `json:"offset"`
	} `json:"subscribe"`
}

// greet begins the protocol on a connection.
func (s *subscriber) greet(w *worker, c *websocket.Conn) {
	s.audience.connected(s, c)
	// A failure to write ends the connection.
	_ = c.Write(websocket.OpText, w.connect)
	_ = c.Write(websocket.OpText, s.subscribe(w.plan.Recover))
}

// connectCommand is the first command of every subscriber.
func connectCommand(token string) []byte {
	if token == "" {
		return []byte(`{"id":1,"connect":{}}`)
	}
	return fmt.Appendf(nil, `{"id":1,"connect":{"token":%s}}`, quoted(token))
}

// subscribe is the second command. One that returns asks for what it has missed.
func (s *subscriber) subscribe(recover bool) []byte {
	p := fmt.Appendf(nil, `{"id":2,"subscribe":{"channel":%s`, quoted(s.topic()))
	if epoch, known := s.audience.epochs.Load(s.topic()); known && recover && s.offset != noOffset {
		p = fmt.Appendf(p, `,"recover":true,"epoch":%s,"offset":%d`, quoted(epoch.(string)), s.offset)
	}
	return append(p, "}}"...)
}

func quoted(text string) []byte {
	p, _ := json.Marshal(text) // a string cannot fail
	return p
}

// messages takes in one message: lines of JSON. Most are a publication alone.
func (s *subscriber) messages(c *websocket.Conn, l *lane, p []byte, now time.Time) {
	for more := true; more; {
		var line []byte
		line, p, more = bytes.Cut(p, newline)
		if number, due, ok := s.audience.moulds[s.channel()].parse(line); ok {
			s.audience.delivered(s, number, due, now.UnixNano())
			continue
		}
		switch {
		case len(line) == 0:
		case bytes.Equal(line, pingLine):
			s.audience.pinged(s)
			_ = c.Write(websocket.OpText, pingLine)
		case bytes.HasPrefix(line, []byte(`{"id":`)):
			s.reply(c, l, line, now)
		default:
			s.position(line)
			s.received(line, now)
		}
	}
}

// reply takes in the answer to a command. That to a subscription may hold publications.
func (s *subscriber) reply(c *websocket.Conn, l *lane, line []byte, now time.Time) {
	var r centrifugeReply
	if err := json.Unmarshal(line, &r); err != nil {
		l.failed("a reply that is not JSON")
		c.Abort(nil)
		return
	}
	if r.Error != nil {
		l.failed(fmt.Sprintf("error %d: %s", r.Error.Code, firstWords(r.Error.Message)))
		c.Abort(nil)
		return
	}
	if r.ID != subscribeID {
		return
	}
	s.received(line, now)
	if r.Subscribe != nil && r.Subscribe.Epoch != "" {
		s.audience.epochs.Store(s.topic(), r.Subscribe.Epoch)
		s.offset = r.Subscribe.Offset
	}
	s.audience.subscribed(s)
}

// position notes the offset of a publication, if its channel has a history.
func (s *subscriber) position(line []byte) {
	at := bytes.LastIndex(line, offsetKey)
	if at < 0 {
		return
	}
	rest := line[at+len(offsetKey):]
	end := bytes.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if offset, err := strconv.ParseUint(string(rest[:max(end, 0)]), 10, 64); err == nil {
		s.offset = offset
	}
}
