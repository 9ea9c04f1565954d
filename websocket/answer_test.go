package websocket

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
)

// asking has options for a protocol whose pings are messages: "pong" is the answer.
func asking(d web.Dispatch) (*Options, *logLines) {
	o, heard := recorded(&Options{Dispatch: d, PingInterval: quiet, AnswerTimeout: time.Second})
	hears := o.OnMessage
	o.OnMessage = func(c *Conn, op Op, p []byte) {
		hears(c, op, p)
		if string(p) == "pong" {
			c.Answered()
		}
	}
	o.OnNoAnswer = func(*Conn) { heard.add("no answer") }
	return o, heard
}

// OnNoAnswer is called once for an answer that has not come in time, and not for one that has.
func TestAwaitAnswer(t *testing.T) {
	eachWay(t, func(t *testing.T, d web.Dispatch) {
		o, heard := asking(d)
		h := hold(t, o, myriad.Config{})
		ask := func() {
			must(t, h.conn.Write(OpText, []byte("ping")))
			if !h.conn.AwaitAnswer() {
				t.Fatal("AwaitAnswer returned false")
			}
		}
		ask()
		h.RunFor(900 * time.Millisecond)
		h.client.send(OpText, "pong")
		h.RunFor(5 * time.Second)
		ask()
		h.RunFor(500 * time.Millisecond)
		ask() // which does not move the time of the first one
		h.client.send(OpText, "something else")
		h.RunFor(450 * time.Millisecond)
		want := []string{"open", `text "pong"`, `text "something else"`}
		if got := heard.all(); !slices.Equal(got, want) {
			t.Errorf("the callbacks were %q, want %q", got, want)
		}
		h.RunFor(5 * time.Second)
		if got := heard.all(); !slices.Equal(got, append(want, "no answer")) {
			t.Errorf("the callbacks were %q, want %q behind %q", got, "no answer", want)
		}
		if h.ended != nil {
			t.Errorf("the connection has ended: %v", h.ended)
		}
		h.conn.Abort(nil)
		h.Run()
		if h.conn.AwaitAnswer() {
			t.Error("AwaitAnswer of a connection that has ended returned true")
		}
		h.stop()
	})
}

// Without OnNoAnswer the connection is aborted.
func TestNoAnswerAborts(t *testing.T) {
	o, _ := asking(web.DispatchInline)
	o.OnNoAnswer = nil
	h := hold(t, o, myriad.Config{})
	h.conn.AwaitAnswer()
	h.RunFor(5 * time.Second)
	if !errors.Is(h.ended, os.ErrDeadlineExceeded) {
		t.Errorf("ended with %v, want os.ErrDeadlineExceeded", h.ended)
	}
	h.stop()
}

// A peer that does not read has its time twice, because the question may have left in between. So
// has one that gets a ping of PingInterval.
func TestRefusedQuestionHasTwiceTheTime(t *testing.T) {
	for name, o := range map[string]*Options{
		"answer": {PingInterval: quiet, AnswerTimeout: time.Second, WriteLimit: 1 << 20},
		"pong":   {PingInterval: 10 * time.Second, PongTimeout: time.Second, WriteLimit: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			h := hold(t, o, myriad.Config{})
			h.client.StopReading()
			must(t, h.conn.Write(OpBinary, make([]byte, 512<<10)))
			h.RunFor(time.Second)
			h.conn.AwaitAnswer()
			began := h.Now()
			if name == "pong" {
				began = began.Add(9 * time.Second) // Opened was a second ago
			}
			for h.ended == nil && h.Now().Sub(began) < time.Minute {
				h.RunFor(100 * time.Millisecond)
			}
			if took := h.Now().Sub(began); h.ended == nil || took < 1900*time.Millisecond ||
				took > 2200*time.Millisecond {
				t.Errorf("ended after %v with %v, want 2 s", took, h.ended)
			}
			h.Run()
			h.stop()
		})
	}
}

// What lies in the socket when the time is over has come in time: however late the loop is, the
// callbacks get it before they are told that there was no answer.
func TestAnswerThatWaitsInTheSocket(t *testing.T) {
	eachWay(t, func(t *testing.T, d web.Dispatch) {
		const crowd = 300
		o, heard := asking(d)
		var conns []*Conn
		o.OnOpen = func(c *Conn) { conns = append(conns, c) }
		calm := sim.Calm()
		calm.MaxSteps = 1 << 30
		w := newWorld(t, 1, calm, myriad.Config{Loops: 1}, handlerOf(t, o))
		clients := make([]*client, crowd)
		for i := range clients {
			clients[i] = w.client(sampleRequest)
		}
		w.RunFor(time.Second)
		for _, c := range conns {
			c.AwaitAnswer()
		}
		w.RunFor(100 * time.Millisecond)
		for _, c := range clients {
			c.send(OpText, "pong")
		}
		w.SetCosts(sim.Costs{Event: 20 * time.Millisecond}) // 6 s for all
		w.RunFor(20 * time.Second)
		for _, line := range heard.all() {
			if line == "no answer" {
				t.Fatal("an answer that had come was not taken")
			}
		}
		w.SetCosts(sim.Costs{})
		w.finish(clients...)
	})
}
