package websocket

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/workers"
)

// A callback that waits delays its own connection, within limits, and no other; then everything
// comes in order.
func TestSlowCallbacksAreBounded(t *testing.T) {
	for _, c := range []struct {
		name    string
		payload string
		n       int
	}{{"many", "", 5000}, {"large", strings.Repeat("x", 50<<10), 40}} {
		t.Run(c.name, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, d web.Dispatch) {
				var gate driver.Parker
				slow, seen := true, 0
				h := hold(t, &Options{Dispatch: d, OnMessage: func(_ *Conn, _ Op, p []byte) {
					if slow {
						gate.Park()
					}
					if n := fmt.Sprint(seen); !strings.HasPrefix(string(p), n+" ") {
						t.Errorf("message %d begins with %.10q", seen, p)
					}
					seen++
				}}, myriad.Config{})
				gate = h.NewParker()
				for i := range c.n {
					h.client.send(OpText, fmt.Sprint(i, " ", c.payload))
				}
				h.RunFor(10 * time.Minute) // it is not taken for dead because it is not read
				if h.ended != nil || seen != 0 {
					t.Fatalf("after a while %d messages were seen, ended with %v", seen, h.ended)
				}
				waiting, size := h.waiting()
				if waiting > maxBacklog || size > maxBacklogBytes+len(c.payload)+10 {
					t.Errorf("%d messages of %d bytes wait", waiting, size)
				}
				slow = false
				gate.Unpark()
				h.RunFor(time.Second)
				if seen != c.n {
					t.Errorf("%d messages of %d", seen, c.n)
				}
				if h.conn.backlog != nil {
					t.Error("an idle connection has a backlog")
				}
				h.finish()
			})
		})
	}
}

func (h *held) waiting() (messages, size int) {
	h.conn.mu.Lock()
	defer h.conn.mu.Unlock()
	b := h.conn.backlog
	return len(b.events) - b.head, b.bytes
}

// However a connection ends while its callbacks are behind, what was taken is still delivered, and
// OnClose comes last.
func TestEndBehindSlowCallbacks(t *testing.T) {
	for name, end := range map[string]func(h *held){
		"close":    func(h *held) { h.client.send(OpClose, closeWith(1000, "")) },
		"closefin": func(h *held) { h.client.send(OpClose, closeWith(1000, "")); h.client.CloseWrite() },
		"fin":      func(h *held) { h.client.CloseWrite() },
		"reset":    func(h *held) { h.client.Reset() },
		"closenow": func(h *held) { h.conn.Abort(nil) },
		"ours":     func(h *held) { _ = h.conn.Close(1001, "") },
		"shutdown": func(h *held) {},
	} {
		for _, n := range []int{5, 1000} {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				eachQueue(t, func(t *testing.T, d web.Dispatch) {
					var gate driver.Parker
					seen := 0
					h := hold(t, &Options{Dispatch: d, CloseTimeout: time.Second, OnMessage: func(*Conn, Op, []byte) {
						if seen == 0 {
							gate.Park()
						}
						seen++
					}}, myriad.Config{})
					gate = h.NewParker()
					for i := range n {
						h.client.send(OpText, fmt.Sprint(i))
					}
					h.Settle()
					end(h)
					h.RunFor(3 * time.Second)
					if h.ended != nil {
						t.Fatal("OnClose before OnMessage has returned")
					}
					gate.Unpark()
					h.RunFor(10 * time.Second)
					if (name == "close" || name == "closefin" || name == "fin") && seen != n {
						t.Errorf("%d messages of %d were delivered", seen, n)
					}
					if got := h.client.lines(t); strings.HasPrefix(name, "close") && name != "closenow" &&
						!slices.Equal(got, lines(line(OpClose, closeWith(1000, "")))) {
						t.Errorf("the client read %q", got)
					}
					if name != "shutdown" && h.ended == nil {
						t.Error("no OnClose")
					}
					h.stop()
				})
			})
		}
	}
}

func TestPanicClosesOnlyItsConnection(t *testing.T) {
	for _, fail := range map[string]func(){"panic": func() { panic("oops") }, "goexit": runtime.Goexit} {
		eachWay(t, func(t *testing.T, d web.Dispatch) {
			h := hold(t, &Options{Dispatch: d, PingInterval: quiet, OnMessage: func(c *Conn, op Op, p []byte) {
				if string(p) == "fail" {
					fail()
				}
				echoBack(c, op, p)
			}}, myriad.Config{})
			first, firstConn := h.client, h.conn
			other := h.world.client(sampleRequest)
			h.Settle()
			h.conn = firstConn
			first.Write([]byte(clientFrame(true, OpText, "fail") + clientFrame(true, OpText, "not heard")))
			h.Settle()
			other.send(OpText, "still there")
			h.Settle()
			h.client = other
			h.wantRead(`text "still there"`)
			h.client = first
			h.wantRead(line(OpClose, closeWith(1011, "internal error")))
			first.send(OpClose, closeWith(1011, ""))
			h.RunFor(time.Minute)
			h.wantEnd(1011, nil)
			logged := slices.IndexFunc(h.heard.all(),
				func(s string) bool { return strings.Contains(s, "panic in a callback") })
			if logged < 0 || slices.Contains(h.heard.all(), `text "not heard"`) {
				t.Errorf("heard and logged %q", h.heard.all())
			}
			h.ended = nil
			other.Close()
			h.Run()
			h.stop()
		})
	}
}

func TestPanicInOnOpenAndOnClose(t *testing.T) {
	eachWay(t, func(t *testing.T, d web.Dispatch) {
		l := new(logLines)
		o := &Options{Dispatch: d, PingInterval: quiet, Logger: testLogger(l),
			OnOpen:  func(*Conn) { panic("in OnOpen") },
			OnClose: func(*Conn, error) { l.add("ended"); panic("in OnClose") }}
		w := newWorld(t, 1, sim.Calm(), myriad.Config{}, handlerOf(t, o))
		c := w.client(sampleRequest)
		w.Run()
		if got, want := c.lines(t), lines(line(OpClose, closeWith(1011, "internal error"))); !slices.Equal(got, want) {
			t.Errorf("the client read %q, want %q", got, want)
		}
		c.Close()
		w.Run()
		if got := l.all(); len(got) != 3 || !strings.Contains(got[0], "in OnOpen") || got[1] != "ended" ||
			!strings.Contains(got[2], "in OnClose") {
			t.Errorf("logged %q", got)
		}
		w.stop()
	})
}

// More connections with work than the executor has room for: all of it is done nevertheless.
func TestCrewWaitsForRoom(t *testing.T) {
	faults := sim.Calm()
	faults.Workers, faults.Queue, faults.Backlog = 2, 3, 1000
	o, heard := recorded(&Options{Dispatch: web.DispatchPool, PingInterval: quiet, OnMessage: echoBack})
	w := newWorld(t, 3, faults, myriad.Config{}, Handler(o))
	var clients []*client
	for range 100 {
		clients = append(clients, w.client(sampleRequest+clientFrame(true, OpText, "1")+clientFrame(true, OpText, "2")))
	}
	w.Run()
	for i, c := range clients {
		if got, want := c.lines(t), lines(`text "1"`, `text "2"`); !slices.Equal(got, want) {
			t.Errorf("client %d read %q", i, got)
		}
		c.Close()
	}
	w.Run()
	if got := len(heard.all()); got != 400 {
		t.Errorf("%d callbacks, want 4 for each of 100 connections", got)
	}
	w.stop()
}

// A pool that was closed under our feet: callbacks still come, in order.
func TestCrewOutlivesItsPool(t *testing.T) {
	pool := workers.New(workers.Config{})
	must(t, pool.Close(context.Background()))
	e := startEngine(t, myriad.Config{Loops: 1})
	heard := make(chan string, 100)
	o := &Options{Workers: pool, Dispatch: web.DispatchPool,
		OnOpen:    func(*Conn) { heard <- "open" },
		OnMessage: func(_ *Conn, _ Op, p []byte) { heard <- string(p) },
		OnClose:   func(_ *Conn, err error) { heard <- fmt.Sprint(CloseStatus(err)) }}
	p := dialRaw(t, listen(t, e, Handler(o)))
	p.write(sampleRequest + clientFrame(true, OpText, "1") + clientFrame(true, OpText, "2") +
		clientFrame(true, OpClose, closeWith(1000, "")))
	p.closeWrite()
	for _, want := range []string{"open", "1", "2", "1000 (normal closure)"} {
		if got := <-heard; got != want {
			t.Fatalf("heard %q, want %q", got, want)
		}
	}
}
