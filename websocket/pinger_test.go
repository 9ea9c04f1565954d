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

// A peer that floods with pings and reads nothing gets few answers, and the last one is to its
// latest ping.
func TestPingFlood(t *testing.T) {
	eachWay(t, func(t *testing.T, d web.Dispatch) {
		h := hold(t, &Options{Dispatch: d, PingInterval: quiet, WriteLimit: 64 << 10}, myriad.Config{})
		h.client.StopReading()
		for h.conn.Write(OpBinary, make([]byte, 32<<10)) == nil {
			h.Settle()
		}
		full := h.conn.Queued()
		for range 50 {
			h.client.Write([]byte(strings.Repeat(clientFrame(true, OpPing, strings.Repeat("f", 120)), 20)))
			h.RunFor(10 * time.Millisecond)
		}
		h.client.send(OpPing, "latest")
		h.RunFor(500 * time.Millisecond)
		if got, most := h.conn.Queued()-full, 32<<10; got > most {
			t.Errorf("%d bytes of pongs are queued, want at most the write limit", got)
		}
		h.client.Resume()
		h.RunFor(time.Second)
		read := h.client.lines(t)
		pongs := 0
		for _, l := range read {
			if strings.HasPrefix(l, "pong") {
				pongs++
			}
		}
		if pongs > 40 || len(read) == 0 || read[len(read)-1] != `pong "latest"` {
			t.Errorf("%d pongs of 1001, the last frame is %.40q", pongs, read[len(read)-1])
		}
		h.finish()
	})
}

// timedPongs has OnPong write a line, with the round trip in whole tenths of a second.
func timedPongs(o *Options) (*Options, *logLines) {
	o, l := recorded(o)
	o.OnPong = func(_ *Conn, p []byte, rtt time.Duration) { l.add("pong %q %.1f", p, rtt.Seconds()) }
	return o, l
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
