package websocket

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/web"
)

// A session is what a client sends, the callbacks that follow, and what the client reads.
type session struct {
	name  string
	wire  string
	heard []string
	read  []string
}

func closeWith(code StatusCode, reason string) string {
	return string(appendCloseBody(nil, code, reason))
}

func sessions() []session {
	normal := clientFrame(true, OpClose, closeWith(1000, "done"))
	echoOf := line(OpClose, closeWith(1000, ""))
	list := []session{
		{"echo", clientFrame(true, OpText, "Hello") + clientFrame(true, OpBinary, "\x00\xff") + normal,
			lines("open", `text "Hello"`, `binary "\x00\xff"`, "end 1000"),
			lines(`text "Hello"`, `binary "\x00\xff"`, echoOf)},
		{"empty messages", clientFrame(true, OpText, "") + clientFrame(true, OpBinary, "") + normal,
			lines("open", `text ""`, `binary ""`, "end 1000"), lines(`text ""`, `binary ""`, echoOf)},
		{"fragments with a ping", clientFrame(false, OpText, "Hel") + clientFrame(true, OpPing, "?") +
			clientFrame(true, opContinuation, "lo") + normal,
			lines("open", `text "Hello"`, "end 1000"), lines(`pong "?"`, `text "Hello"`, echoOf)},
		{"unsolicited pong", clientFrame(true, OpPong, "!") + normal, lines("open", "end 1000"), lines(echoOf)},
		{"close without a code", clientFrame(true, OpClose, ""), lines("open", "end 1005"), lines(`close ""`)},
		{"frames behind a close", normal + clientFrame(true, OpText, "late") + clientFrame(true, OpPing, ""),
			lines("open", "end 1000"), lines(echoOf)},
		{"ten pings", strings.Repeat(clientFrame(true, OpPing, "p"), 10) + normal, lines("open", "end 1000"),
			append(slices.Repeat(lines(`pong "p"`), 10), echoOf)},
	}
	for code, wire := range map[StatusCode]string{
		StatusProtocolError:           "\x81\x05Hello",
		StatusInvalidFramePayloadData: clientFrame(true, OpText, "\xff"),
		StatusMessageTooBig:           clientFrame(true, OpBinary, strings.Repeat("x", 1001)),
	} {
		var v *violation
		_, _, err := (&reader{rules: &readRules{fromClient: true, limit: 1000}}).feed([]byte(wire))
		if !errors.As(err, &v) {
			panic("the case is not a violation")
		}
		list = append(list, session{fmt.Sprint("violation ", code), clientFrame(true, OpText, "first") + wire +
			clientFrame(true, OpText, "void"),
			lines("open", `text "first"`, fmt.Sprint("end ", uint16(code))),
			lines(`text "first"`, line(OpClose, closeWith(code, v.text)))})
	}
	for _, code := range []StatusCode{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000,
		3999, 4000, 4999} {
		list = append(list, session{fmt.Sprint("close ", uint16(code)),
			clientFrame(true, OpClose, closeWith(code, "why")),
			lines("open", fmt.Sprint("end ", uint16(code))), lines(line(OpClose, closeWith(code, "")))})
	}
	for _, code := range []uint16{0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535} {
		list = append(list, session{fmt.Sprint("invalid close ", code),
			clientFrame(true, OpClose, string([]byte{byte(code >> 8), byte(code)})),
			lines("open", "end 1002"),
			lines(line(OpClose, closeWith(1002, fmt.Sprintf("sent a close frame with invalid status %d", code))))})
	}
	return list
}

// Every session, in worlds that cut, delay and hold up the bytes in every way but losing them,
// under every dispatch.
func TestSessions(t *testing.T) {
	eachWay(t, func(t *testing.T, d web.Dispatch) {
		for i, s := range sessions() {
			t.Run(s.name, func(t *testing.T) {
				for seed := range uint64(8) {
					runSession(t, s, d, seed+100*uint64(i))
				}
			})
		}
	})
}

func runSession(t *testing.T, s session, d web.Dispatch, seed uint64) {
	t.Helper()
	o, heard := recorded(&Options{Dispatch: d, PingInterval: quiet, MaxMessage: 1000, OnMessage: echoBack})
	w := newWorld(t, seed, sim.Lossless(), myriad.Config{}, handlerOf(t, o))
	c := w.client(sampleRequest + s.wire)
	w.Run()
	read := c.lines(t)
	if got := heard.all(); !slices.Equal(got, s.heard) {
		t.Errorf("seed %d: heard %q, want %q", seed, got, s.heard)
	}
	if d == web.DispatchPool || d == quickly {
		read = orderedByKind(read) // echoes come from other goroutines than control frames, or at the end of the turn
		s.read = orderedByKind(s.read)
	}
	if !slices.Equal(read, s.read) {
		t.Errorf("seed %d: the client read %q, want %q", seed, read, s.read)
	}
	if !c.Ended() {
		t.Errorf("seed %d: the server did not end the connection", seed)
	}
	w.stop()
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
