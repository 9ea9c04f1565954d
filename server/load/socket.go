package load

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/websocket"
)

// A socketLink is a WebSocket that sends messages and waits for each to come back.
type socketLink struct {
	linkState
	lane *lane
	conn *websocket.Conn

	requester *requester
}

func (k *socketLink) state() *linkState { return &k.linkState }

func (k *socketLink) abort(error) { k.conn.Abort(nil) }

func (k *socketLink) send(time.Time) error {
	op := websocket.OpBinary
	if k.lane.plan.Message != "" {
		op = websocket.OpText
	}
	return k.conn.Write(op, k.lane.message)
}

// received takes in a message.
func (k *socketLink) received(p []byte) {
	if string(p) != string(k.lane.message) {
		k.lane.replied(k, 1, 1, differs, false)
		return
	}
	k.lane.replied(k, 1, 0, "", false)
}

// differs is the reason of a reply that is not what was sent.
const differs = "an echo that differs"

// socketOptions are those of all WebSockets of a lane: echo, idle, speakers and subscribers. The
// connections of the last two have these as their value from the beginning.
func (w *worker) socketOptions(l *lane, e *myriad.Engine) *websocket.DialOptions {
	return &websocket.DialOptions{
		Options: websocket.Options{
			// Our callbacks are quick; where one is not, another goroutine takes the loop.
			Engine: e, Dispatch: web.DispatchInline, Overflow: websocket.OverflowFail,
			HandshakeTimeout: w.plan.Timeout, MaxMessage: 4 * largestMessage,
			PingInterval: -1, // the server's pings keep the connection
			OnOpen:       func(c *websocket.Conn) { w.socketOpened(l, c) },
			OnMessage: func(c *websocket.Conn, _ websocket.Op, p []byte) {
				now := time.Now()
				l.receivedAt(len(p), now)
				switch v := c.Value().(type) {
				case *subscriber:
					if w.plan.Protocol == Rooms {
						v.heard(w, l, p, now)
						return
					}
					v.messages(c, l, p, now)
				case *socketLink:
					v.received(p)
				}
			},
			OnClose: w.socketClosed,
		},
		Header:      w.plan.header(),
		TLSConfig:   w.tls,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return w.dial(ctx) },
	}
}

func (w *worker) socketOpened(l *lane, c *websocket.Conn) {
	switch v := c.Value().(type) {
	case *subscriber:
		if w.plan.Protocol == Rooms {
			v.enter(w, c)
			return
		}
		v.greet(w, c)
	case *speaker:
		v.publisher.state.opened()
		if v.conn = c; w.join(c, int32(v.room), v.number()) {
			l.opened(v)
		}
	case *requester:
		v.state.opened()
		k := &socketLink{lane: l, conn: c, requester: v}
		c.SetValue(k)
		l.opened(k)
	}
}

func (w *worker) socketClosed(c *websocket.Conn, err error) {
	switch v := c.Value().(type) {
	case *subscriber:
		w.left(v, err)
	case *speaker:
		v.lane.lost(err, v)
		w.again(v.publisher, true)
	case *socketLink:
		v.lane.lost(err, v)
		w.again(v.requester, true)
	}
}

// openSocket opens a WebSocket of a lane. value is its subscriber, speaker or requester.
func (w *worker) openSocket(place int, at *url.URL, value any) error {
	_, response, err := websocket.DialWith(w.ctx, at.String(), w.sockets[place], value)
	if err != nil && response != nil {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	return err
}

// header is the plan's header for a WebSocket's handshake.
func (p Plan) header() http.Header {
	h := http.Header{}
	for _, line := range p.Header {
		name, value, _ := strings.Cut(line, ":")
		h.Add(name, strings.TrimSpace(value))
	}
	return h
}
