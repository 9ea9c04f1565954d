package websocket

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
)

// timedPongs has OnPong write a line, with the round trip in whole tenths of a second.
func timedPongs(o *Options) (*Options, *logLines) {
	o, l := recorded(o)
	o.OnPong = func(_ *Conn, p []byte, rtt time.Duration) { l.add("pong %q %.1f", p, rtt.Seconds()) }
	return o, l
}

// Each pong that answers a ping is told with its round trip, in order with messages; those before
// it count as answered, and what answers no ping is ignored.
func TestOnPong(t *testing.T) {
	eachWay(t, func(t *testing.T, d web.Dispatch) {
		var conn *Conn
		o, heard := timedPongs(&Options{PingInterval: quiet, Dispatch: d, OnOpen: func(c *Conn) { conn = c }})
		w := newWorld(t, 1, sim.Calm(), myriad.Config{}, handlerOf(t, o))
		p := w.client(sampleRequest)
		w.RunFor(time.Second)
		for _, payload := range []string{"a", "b", "c", "c"} {
			must(t, conn.Ping([]byte(payload)))
			w.RunFor(time.Second)
		}
		p.send(OpText, "before")
		for _, payload := range []string{"never sent", "b", "a", "c", "c", "c", ""} {
			p.send(OpPong, payload)
		}
		p.send(OpText, "behind")
		w.RunFor(time.Second)
		want := []string{"open", `text "before"`, `pong "b" 3.0`, `pong "c" 2.0`, `pong "c" 1.0`, `text "behind"`}
		if got := heard.all(); !slices.Equal(got, want) {
			t.Errorf("the callbacks were %q, want %q", got, want)
		}
		conn.mu.Lock()
		if conn.cold != nil {
			t.Errorf("with all pings answered the connection keeps %+v", conn.cold)
		}
		conn.mu.Unlock()
		w.finish(p)
	})
}

// Pings of PingInterval are measured too.
func TestOnPongOfInterval(t *testing.T) {
	o, heard := timedPongs(&Options{PingInterval: 10 * time.Second})
	w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(o))
	p := w.client(sampleRequest)
	w.RunFor(12 * time.Second)
	p.send(OpPong, "")
	w.RunFor(time.Second)
	if got := heard.all(); len(got) != 2 || !strings.HasPrefix(got[1], `pong "" 2`) &&
		!strings.HasPrefix(got[1], `pong "" 1.9`) {
		t.Errorf("the callbacks were %q, want the pong after 2 s", got)
	}
	w.finish(p)
}

// A peer that answers no ping costs 16 of them, and only the latest 16 can be answered.
func TestSentPingsAreBounded(t *testing.T) {
	var conn *Conn
	o, heard := timedPongs(&Options{PingInterval: quiet, OnOpen: func(c *Conn) { conn = c }})
	w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(o))
	p := w.client(sampleRequest)
	w.RunFor(time.Second)
	for i := range 3 * maxSentPings {
		must(t, conn.Ping(fmt.Append(nil, i)))
	}
	conn.mu.Lock()
	if n := len(*conn.cold.pings); n != maxSentPings {
		t.Errorf("%d pings are remembered, want %d", n, maxSentPings)
	}
	conn.mu.Unlock()
	for _, i := range []int{2*maxSentPings - 1, 2 * maxSentPings} {
		p.send(OpPong, fmt.Sprint(i))
	}
	w.RunFor(time.Second)
	if got, want := heard.all(), []string{"open", `pong "32" 0.0`}; !slices.Equal(got, want) {
		t.Errorf("the callbacks were %q, want %q", got, want)
	}
	w.finish(p)
}

// A ping from before the connection has arrived is measured from its arrival.
func TestOnPongOfEarlyPing(t *testing.T) {
	o, heard := timedPongs(&Options{PingInterval: quiet})
	s, err := o.settings()
	must(t, err)
	c := newConn(s, deflateTerms{}, 0)
	must(t, c.Ping([]byte("early")))
	w := newWorld(t, 1, sim.Calm(), myriad.Config{}, upgradeTo{c})
	p := w.client("")
	w.RunFor(3 * time.Second)
	p.send(OpPong, "early")
	w.RunFor(time.Second)
	if got := heard.all(); len(got) != 2 || !strings.HasPrefix(got[1], `pong "early" 3.`) &&
		!strings.HasPrefix(got[1], `pong "early" 2.9`) {
		t.Errorf("the callbacks were %q, want the pong after 3 s", got)
	}
	w.finish(p)
}
