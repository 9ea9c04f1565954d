package websocket

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
)

func closeWith(code StatusCode, reason string) string {
	return string(appendCloseBody(nil, code, reason))
}

// orderedByKind puts data before pongs, and close last.
func orderedByKind(l []string) []string {
	l = slices.Clone(l)
	rank := func(s string) int {
		return slices.IndexFunc([]string{"text", "binary", "pong", "close"},
			func(kind string) bool { return strings.HasPrefix(s, kind) })
	}
	slices.SortStableFunc(l, func(a, b string) int { return rank(a) - rank(b) })
	return l
}

// The same bytes, one at a time with time in between: nothing is kept but what is incomplete.
func TestByteByByte(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d web.Dispatch) {
		o, heard := recorded(&Options{Dispatch: d, PingInterval: quiet, OnMessage: echoBack})
		w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(o))
		wire := sampleRequest + clientFrame(false, OpText, "κό") + clientFrame(true, opContinuation, "σμε") +
			clientFrame(true, OpPing, "still there?")
		c := w.client("")
		for i := range len(wire) {
			c.Write([]byte(wire[i : i+1]))
			w.Settle()
		}
		if got, want := c.lines(t), lines(`text "κόσμε"`, `pong "still there?"`); !slices.Equal(got, want) {
			t.Errorf("the client read %q, want %q", got, want)
		}
		c.send(OpClose, closeWith(StatusGoingAway, ""))
		w.Run()
		if got, want := heard.all(), lines("open", `text "κόσμε"`, "end 1001"); !slices.Equal(got, want) {
			t.Errorf("heard %q, want %q", got, want)
		}
		w.stop()
	})
}

// With every fault on, whatever happens to a connection, its callbacks come in order: open, a
// prefix of what was sent, one end.
func TestChaos(t *testing.T) {
	ways := [4]web.Dispatch{web.DispatchPool, web.DispatchInline, web.DispatchAuto, quickly}
	for seed := range uint64(40) {
		byConn := map[*Conn]*[]string{}
		o := &Options{Dispatch: ways[seed%4], PingInterval: quiet, Logger: slog.New(slog.DiscardHandler)}
		note := func(c *Conn, s string) {
			if byConn[c] == nil {
				byConn[c] = new([]string)
			}
			*byConn[c] = append(*byConn[c], s)
		}
		o.OnOpen = func(c *Conn) { note(c, "open") }
		o.OnMessage = func(c *Conn, op Op, p []byte) { note(c, string(p)); _ = c.Write(op, p) }
		o.OnClose = func(c *Conn, err error) { note(c, "end") }
		w := newWorld(t, seed, sim.Options{}, myriad.Config{}, handlerOf(t, o))
		var clients []*client
		for range 8 {
			c := w.client(sampleRequest)
			for i := range 200 {
				c.send(OpText, fmt.Sprint(i))
			}
			clients = append(clients, c)
		}
		clients[3].Reset()
		clients[5].CloseWrite()
		w.RunFor(1e9)
		for _, c := range clients {
			c.Close()
		}
		w.Run()
		for _, heard := range byConn {
			checkOrder(t, seed, *heard)
		}
		w.stop()
	}
}

func checkOrder(t *testing.T, seed uint64, heard []string) {
	t.Helper()
	if len(heard) < 2 || heard[0] != "open" || heard[len(heard)-1] != "end" {
		t.Fatalf("seed %d: heard %.200q", seed, heard)
	}
	for i, s := range heard[1 : len(heard)-1] {
		if s != fmt.Sprint(i) {
			t.Fatalf("seed %d: message %d is %q", seed, i, s)
		}
	}
}

// The same seed gives the same trace, byte for byte.
func TestSeedReproduces(t *testing.T) {
	run := func() uint64 {
		o := &Options{OnMessage: echoBack}
		w := newWorld(t, 7, sim.Options{}, myriad.Config{}, Handler(o))
		for range 5 {
			w.client(sampleRequest + strings.Repeat(clientFrame(true, OpText, "again"), 50))
		}
		w.RunFor(100e9)
		hash := w.Hash()
		w.stop()
		return hash
	}
	if a, b := run(), run(); a != b {
		t.Errorf("hashes %x and %x", a, b)
	}
}

func TestReadAheadIsKept(t *testing.T) {
	o, heard := recorded(&Options{PingInterval: quiet})
	w := newWorld(t, 1, sim.Calm(), myriad.Config{}, Handler(o))
	frame := clientFrame(true, OpText, "early")
	c := w.client(sampleRequest + frame + frame[:3])
	w.Settle()
	c.Write([]byte(frame[3:]))
	w.Settle()
	if got, want := heard.all(), lines("open", `text "early"`, `text "early"`); !slices.Equal(got, want) {
		t.Errorf("heard %q, want %q", got, want)
	}
	if !bytes.Contains(c.Received(), []byte("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")) {
		t.Errorf("the response has no accept key: %q", c.Received())
	}
	w.finish(c)
}
