package load

import (
	"bytes"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/myriad-go/myriad/websocket"
)

// The places of Plan.URL, Message and Join that are filled in.
const (
	idPlace     = "{id}"
	roomPlace   = "{room}"
	numberPlace = "{n}"
)

// fill replaces the places of a room and of a connection in a text.
func fill(text string, room int32, number int) string {
	if !strings.Contains(text, "{") {
		return text
	}
	return strings.NewReplacer(roomPlace, strconv.Itoa(int(room)), numberPlace, strconv.Itoa(number)).Replace(text)
}

// roomURL is where a connection of a room is opened.
func (w *worker) roomURL(room int32, number int) (*url.URL, error) {
	return url.Parse(fill(w.plan.URL, room, number))
}

// messageID is what {id} stands for. It has letters, digits and dots only, so that it may stand in
// JSON, HTML and URLs. The run's number tells it from those that a server keeps of earlier runs.
func messageID(run uint64, room int32, number int64, due time.Time) []byte {
	return fmt.Appendf(nil, "load%016x.%d.%d.%d", run, room, number, due.UnixNano())
}

// eachID calls f for each id of this run in a message, in order.
func eachID(p []byte, run uint64, f func(room, number, due int64)) {
	mark := fmt.Appendf(nil, "load%016x.", run)
	for {
		_, rest, found := bytes.Cut(p, mark)
		if !found {
			return
		}
		room, rest := leadingInt(rest)
		rest, dot := bytes.CutPrefix(rest, []byte("."))
		number, rest := leadingInt(rest)
		rest, dot2 := bytes.CutPrefix(rest, []byte("."))
		due, rest := leadingInt(rest)
		if p = rest; dot && dot2 && number > 0 {
			f(room, number, due)
		}
	}
}

// enter joins the room on a connection that stands.
func (s *subscriber) enter(w *worker, c *websocket.Conn) {
	s.audience.connected(s, c)
	if w.join(c, s.channel(), int(s.number)) {
		s.audience.subscribed(s)
	}
}

// join sends Plan.Join. A failure to write ends the connection.
func (w *worker) join(c *websocket.Conn, room int32, number int) bool {
	return w.plan.Join == "" || c.Write(websocket.OpText, []byte(fill(w.plan.Join, room, number))) == nil
}

// heard takes in a message of a server of rooms. What has no id of this run is the server's own.
func (s *subscriber) heard(w *worker, l *lane, p []byte, now time.Time) {
	eachID(p, w.plan.Run, func(room, number, due int64) {
		if room != int64(s.channel()) {
			l.failed("a message of another room")
			return
		}
		s.audience.begun(s, number)
		s.audience.delivered(s, number, due, now.UnixNano())
	})
}

// A speaker is the connection that sends the messages of one room. It has joined the room, and what
// comes back to it does not count: some servers leave the sender out.
type speaker struct {
	linkState
	worker *worker
	lane   *lane
	room   int
	conn   *websocket.Conn

	publisher *publisher
}

func (k *speaker) state() *linkState { return &k.linkState }

func (k *speaker) abort(error) { k.conn.Abort(nil) }

func (k *speaker) send(due time.Time) error {
	w, room := k.worker, int32(k.room)
	id := messageID(w.plan.Run, room, w.last[k.room].Add(1), due)
	text := fill(w.plan.Message, room, k.number())
	return k.conn.Write(websocket.OpText, bytes.ReplaceAll([]byte(text), []byte(idPlace), id))
}

// unanswered implements oneWay.
func (k *speaker) unanswered() {}

// number is that of the connection: members come first.
func (k *speaker) number() int { return k.worker.plan.Speakers + k.room }

// openSpeaker opens the connection that sends to a room.
func (w *worker) openSpeaker(p *publisher) error {
	k := &speaker{worker: w, lane: w.lanes[0], room: p.channel, publisher: p}
	at, err := w.roomURL(int32(k.room), k.number())
	if err != nil {
		return err
	}
	return w.openSocket(0, at, k)
}
