package websocket

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
)

func TestPingsKeepAConnection(t *testing.T) {
	h := hold(t, &Options{}, myriad.Config{})
	for range 5 {
		h.RunFor(DefaultPingInterval + time.Second)
		h.client.send(OpPong, "")
	}
	h.wantRead(slices.Repeat(lines(`ping ""`), 5)...)
	if h.ended != nil {
		t.Errorf("ended with %v", h.ended)
	}
	h.finish()
}

func TestSilentPeerIsGivenUp(t *testing.T) {
	h := hold(t, &Options{PingInterval: 10 * time.Second, PongTimeout: 4 * time.Second}, myriad.Config{})
	h.RunFor(9900 * time.Millisecond)
	h.wantRead()
	h.RunFor(200 * time.Millisecond)
	h.wantRead(`ping ""`)
	h.RunFor(3700 * time.Millisecond)
	if h.ended != nil {
		t.Fatalf("given up early: %v", h.ended)
	}
	h.RunFor(400 * time.Millisecond)
	h.wantEnd(0, os.ErrDeadlineExceeded)
	h.Run()
	h.stop()
}

// Any byte counts, be it the first of a frame, and a peer that talks is not pinged.
func TestAnyByteIsLife(t *testing.T) {
	h := hold(t, &Options{PingInterval: 10 * time.Second, PongTimeout: 4 * time.Second}, myriad.Config{})
	frame := clientFrame(true, OpText, "slow")
	for i := range len(frame) {
		h.RunFor(9 * time.Second)
		h.client.Write([]byte(frame[i : i+1]))
		h.Settle()
	}
	h.wantRead()
	h.RunFor(11 * time.Second)
	h.client.Write([]byte(frame[:1]))
	h.RunFor(9 * time.Second)
	h.wantRead(`ping ""`)
	if got := h.heard.all(); !slices.Equal(got, lines("open", `text "slow"`)) {
		t.Errorf("heard %q", got)
	}
	h.finish()
}

func TestPingsOff(t *testing.T) {
	h := hold(t, &Options{PingInterval: -1}, myriad.Config{})
	h.RunFor(24 * time.Hour)
	h.wantRead()
	h.finish()

	h = hold(t, &Options{PingInterval: time.Second, PongTimeout: -1}, myriad.Config{})
	h.RunFor(5500 * time.Millisecond)
	h.wantRead(slices.Repeat(lines(`ping ""`), 5)...)
	if h.ended != nil {
		t.Errorf("ended with %v although there is no PongTimeout", h.ended)
	}
	h.finish()
}

func TestPingByHand(t *testing.T) {
	h := hold(t, &Options{PingInterval: quiet}, myriad.Config{})
	if err := h.conn.Ping([]byte(strings.Repeat("p", 126))); err == nil {
		t.Error("a ping of 126 bytes was taken")
	}
	noError(t, h.conn.Ping([]byte("hello?")))
	h.Settle()
	h.wantRead(`ping "hello?"`)
	h.finish()
}

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

// One read with very many pings has at most maxPongs of them and the last answered.
func TestPingBurst(t *testing.T) {
	h := hold(t, &Options{PingInterval: quiet}, myriad.Config{})
	h.client.Write([]byte(strings.Repeat(clientFrame(true, OpPing, "a"), 1000) + clientFrame(true, OpPing, "z")))
	h.RunFor(time.Second)
	h.wantRead(append(slices.Repeat(lines(`pong "a"`), maxPongs), `pong "z"`)...)
	h.finish()
}

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
