package resp

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	written "github.com/myriad-go/myriad/internal/parts"
)

// A house is an engine with a server whose connections move. A connection's Value is the number of
// COUNT commands so far.
type house struct {
	*Server
	engine *myriad.Engine
	addr   string
	pubsub *PubSub
	events chan string
	blocks chan struct{} // BLOCK waits for it
}

// newHouse returns a house. change, if not nil, adjusts its server.
func newHouse(t *testing.T, change func(*Server)) *house {
	t.Helper()
	e, err := myriad.Start(myriad.Config{Loops: 2, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	h := &house{engine: e, pubsub: new(PubSub), events: make(chan string, 64), blocks: make(chan struct{})}
	m := NewMux()
	h.pubsub.Register(m)
	m.Handle("COUNT", 1, func(w *Reply, c *Command) {
		n := c.Conn.Value().(int) + 1
		c.Conn.SetValue(n)
		w.Int(int64(n))
	}, "")
	m.Handle("ECHO", 2, func(w *Reply, c *Command) { w.Bulk(c.Args[1]) }, "")
	m.Handle("BLOCK", 1, func(w *Reply, _ *Command) { <-h.blocks; w.OK() }, "")
	h.Server = &Server{Engine: e, Handler: m, Logger: quiet()}
	h.OnOpen = func(c *Conn) { c.SetValue(0); h.events <- "open" }
	h.OnClose = func(*Conn, error) { h.events <- "close" }
	h.OnMoved = func(*Conn) { h.events <- "moved" }
	h.FreezeValue = func(c *Conn, dst []byte) ([]byte, error) {
		return append(fmt.Appendf(dst, "%d ", c.Value()), h.pubsub.AppendState(c, nil)...), nil
	}
	h.ThawValue = func(c *Conn, state []byte) error {
		count, rest, _ := strings.Cut(string(state), " ")
		n := 0
		if _, err := fmt.Sscan(count, &n); err != nil {
			return err
		}
		c.SetValue(n)
		return h.pubsub.Restore(c, []byte(rest))
	}
	if change != nil {
		change(h.Server)
	}
	ln, err := h.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.addr = ln.Addr().String()
	t.Cleanup(func() {
		over, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = h.Close() // nothing to say
		if err := e.Shutdown(over); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return h
}

func (h *house) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-h.events:
		if got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("no %s", want)
	}
}

func (h *house) thawer(t *testing.T) myriad.Thawer {
	t.Helper()
	th, err := h.Thawer()
	if err != nil {
		t.Fatal(err)
	}
	return th
}

// freeze freezes all connections, which have to be so many.
func (h *house) freeze(t *testing.T, want int) (*myriad.Frozen, []myriad.Record) {
	t.Helper()
	f, err := h.engine.Freeze(10*time.Second, h.thawer(t))
	if err != nil {
		t.Fatal(err)
	}
	records := f.Records()
	if len(records) != want || f.Left() != 0 {
		t.Fatalf("%d connections move, %d are left", len(records), f.Left())
	}
	return f, records
}

// thaw makes the records frozen connections of the house.
func (h *house) thaw(t *testing.T, records []myriad.Record, thawer myriad.Thawer) (*myriad.Frozen, error) {
	t.Helper()
	records = slices.Clone(records)
	for i := range records {
		s, err := h.engine.Sockets().Share(records[i].Socket)
		if err != nil {
			t.Fatal(err)
		}
		records[i].Socket, records[i].Thawer = s, thawer
	}
	f, err := h.engine.Thaw()
	if err != nil {
		t.Fatal(err)
	}
	return f, f.Add(records)
}

// moveTo moves one connection. between, if not nil, is called while it is frozen.
func (h *house) moveTo(t *testing.T, to *house, between func()) {
	t.Helper()
	here, records := h.freeze(t, 1)
	if between != nil {
		between()
	}
	there, err := to.thaw(t, records, to.thawer(t))
	if err != nil {
		t.Fatal(err)
	}
	here.Moved()
	there.GoOn()
}

// A guest is a client that writes and reads raw bytes.
type guest struct {
	net.Conn
	r *bufio.Reader
}

func (h *house) visit(t *testing.T) *guest {
	t.Helper()
	nc, err := net.Dial("tcp", h.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	return &guest{nc, bufio.NewReader(nc)}
}

// hears reads what has to come next.
func (g *guest) hears(t *testing.T, want string) {
	t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(g.r, got)
	if string(got[:n]) != want || err != nil {
		t.Fatalf("%q (%v), want %q", got[:n], err, want)
	}
}

func (g *guest) asks(t *testing.T, commands, want string) {
	t.Helper()
	if _, err := io.WriteString(g, commands); err != nil {
		t.Fatal(err)
	}
	g.hears(t, want)
}

// hello3 is the beginning of the answer to HELLO 3.
const hello3 = "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n" +
	"$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"

// Each state that commands of the connection can bring about goes on in another process, as if it
// had not moved.
func TestStatesMove(t *testing.T) {
	const sub = "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"
	for name, tt := range map[string]struct {
		before, answer, after, want string
		auth                        bool
	}{
		"at rest":     {"PING\r\n", "+PONG\r\n", "PING\r\nCLIENT ID\r\n", "+PONG\r\n:1\r\n", false},
		"a value":     {"COUNT\r\nCOUNT\r\n", ":1\r\n:2\r\n", "COUNT\r\n", ":3\r\n", false},
		"a name":      {"CLIENT SETNAME joe\r\n", "+OK\r\n", "CLIENT GETNAME\r\n", "$3\r\njoe\r\n", false},
		"RESP3":       {"HELLO 3\r\n", hello3, "CLIENT GETNAME\r\n", "_\r\n", false},
		"replies off": {"CLIENT REPLY OFF\r\nPING\r\n", "", "PING\r\nCLIENT REPLY ON\r\n", "+OK\r\n", false},
		"the next reply": {"CLIENT REPLY SKIP\r\n", "", "PING\r\nECHO 1\r\n",
			"$1\r\n1\r\n", false},
		"a subscription in RESP2": {"SUBSCRIBE a\r\n", sub, "PING\r\nCOUNT\r\nUNSUBSCRIBE\r\nECHO 1\r\n",
			"*2\r\n$4\r\npong\r\n$0\r\n\r\n-ERR Can't execute 'count': only (P|S)SUBSCRIBE / " +
				"(P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context\r\n" +
				"*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n$1\r\n1\r\n", false},
		"a subscription in RESP3": {"HELLO 3\r\nSUBSCRIBE a\r\n", hello3 + strings.Replace(sub, "*", ">", 1),
			"PUBLISH a 1\r\n", ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\n1\r\n:1\r\n", false},
		"authenticated": {"AUTH joe secret\r\n", "+OK\r\n", "COUNT\r\n", ":1\r\n", true},
		"a stranger": {"COUNT\r\n", "-NOAUTH Authentication required.\r\n", "COUNT\r\nAUTH joe secret\r\nCOUNT\r\n",
			"-NOAUTH Authentication required.\r\n+OK\r\n:1\r\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			change := func(s *Server) {
				if tt.auth {
					s.Auth = func(_ *Conn, user, password string) bool { return user == "joe" && password == "secret" }
				}
			}
			old, next := newHouse(t, change), newHouse(t, change)
			g := old.visit(t)
			old.expect(t, "open")
			g.asks(t, tt.before, tt.answer)
			if tt.answer == "" { // it has been read when the loop has
				waitFor(t, func() bool { return old.engine.Stats().BytesIn == uint64(len(tt.before)) })
			}
			old.moveTo(t, next, nil)
			old.expect(t, "moved")
			if old.Conns() != 0 || next.Conns() != 1 {
				t.Errorf("%d and %d connections", old.Conns(), next.Conns())
			}
			g.asks(t, tt.after, tt.want)
			next.visit(t).asks(t, "CLIENT ID\r\n", map[bool]string{true: "-NOAUTH Authentication required.\r\n",
				false: ":2\r\n"}[tt.auth])
			next.expect(t, "open")
			g.Close()
			next.expect(t, "close")
		})
	}
}

func waitFor(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain")
		}
	}
}

// A pipeline that is cut at any byte by a move is answered like a whole one.
func TestPipelinesMove(t *testing.T) {
	const commands = "COUNT\r\n*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\nHELLO 3\r\n\r\n*1\r\n$5\r\nCOUNT\r\n"
	answers := ":1\r\n$3\r\na\r\n\r\n" + hello3 + ":2\r\n"
	for _, mode := range []Dispatch{DispatchAuto, DispatchInline, DispatchPool} {
		change := func(s *Server) { s.Dispatch = mode }
		for at := range len(commands) + 1 {
			old, next := newHouse(t, change), newHouse(t, change)
			g := old.visit(t)
			old.expect(t, "open")
			if _, err := io.WriteString(g, commands[:at]); err != nil {
				t.Fatal(err)
			}
			waitFor(t, func() bool { return old.engine.Stats().BytesIn == uint64(at) })
			old.moveTo(t, next, func() {
				if _, err := io.WriteString(g, commands[at:]); err != nil {
					t.Fatal(err)
				}
			})
			g.hears(t, answers)
			if t.Failed() {
				t.Fatalf("%v, cut at %d", mode, at)
			}
		}
	}
}

// Subscriptions of a PubSub move, and a message for one of them reaches it in the process that has
// the connection.
func TestPubSubMoves(t *testing.T) {
	old, next := newHouse(t, nil), newHouse(t, nil)
	g := old.visit(t)
	g.asks(t, "SUBSCRIBE a b\r\nPSUBSCRIBE n*\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"+
		"*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n*3\r\n$10\r\npsubscribe\r\n$2\r\nn*\r\n:3\r\n")
	old.moveTo(t, next, func() {
		if n := old.pubsub.Publish("a", []byte("late")); n != 1 {
			t.Errorf("a message to a frozen connection reaches %d", n)
		}
	})
	if n := old.pubsub.Publish("a", nil) + old.pubsub.Publish("news", nil); n != 0 {
		t.Errorf("the old process has %d subscriptions", n)
	}
	for channel, want := range map[string]string{"b": "*3\r\n$7\r\nmessage\r\n$1\r\nb\r\n$1\r\n1\r\n",
		"news": "*4\r\n$8\r\npmessage\r\n$2\r\nn*\r\n$4\r\nnews\r\n$1\r\n1\r\n"} {
		if n := next.pubsub.Publish(channel, []byte("1")); n != 1 {
			t.Errorf("%q has %d subscriptions", channel, n)
		}
		g.hears(t, want)
	}
	g.asks(t, "UNSUBSCRIBE a\r\n", "*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:2\r\n")
	g.Close()
	waitFor(t, func() bool { return next.pubsub.Publish("b", nil) == 0 })
}

// What SetOverflow and SetTransaction were told moves, and so does the time of an idle client,
// which ends by the new process's limit.
func TestSettingsMove(t *testing.T) {
	set := make(chan *Conn, 2)
	change := func(s *Server) {
		s.OnOpen = func(c *Conn) {
			_ = c.SetOverflow(OverflowClose, 12345) // the arguments are right
			c.SetTransaction(true)
			c.SetValue(0)
		}
		thaw := s.ThawValue
		s.ThawValue = func(c *Conn, state []byte) error { set <- c; return thaw(c, state) }
	}
	old, next := newHouse(t, change), newHouse(t, func(s *Server) {
		change(s)
		s.IdleTimeout = 50 * time.Millisecond
	})
	g := old.visit(t)
	waitFor(t, func() bool { return old.Conns() == 1 })
	old.moveTo(t, next, nil)
	c := <-set
	if all := c.get(); all.overflow != OverflowClose || all.limit != 12345 || !c.is(stateTransaction) {
		t.Errorf("%+v, state %b", all, c.state.Load())
	}
	if _, err := g.r.ReadByte(); err == nil {
		t.Error("the idle client got something")
	}
	next.expect(t, "close")
}

// A connection is not at rest while a command of it runs, and moves behind that.
func TestBusyConnectionsStay(t *testing.T) {
	old, next := newHouse(t, nil), newHouse(t, nil)
	g := old.visit(t)
	g.asks(t, "COUNT\r\n", ":1\r\n")
	const commands = "BLOCK\r\nCOUNT\r\n"
	if _, err := io.WriteString(g, commands); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return old.engine.Stats().BytesIn == uint64(len("COUNT\r\n"+commands)) })
	f, err := old.engine.Freeze(0, old.thawer(t))
	if err != nil || f.Len() != 0 || f.Left() != 1 {
		t.Fatalf("%d frozen, %d left, %v", f.Len(), f.Left(), err)
	}
	f.GoOn()
	old.blocks <- struct{}{}
	g.hears(t, "+OK\r\n:2\r\n")
	old.moveTo(t, next, nil)
	g.asks(t, "COUNT\r\n", ":3\r\n")
}

// A connection that was closed or pushed to since it has come to rest is not lost.
func TestFrozenConnectionIsUsed(t *testing.T) {
	var conn *Conn
	old := newHouse(t, func(s *Server) {
		open := s.OnOpen
		s.OnOpen = func(c *Conn) { conn = c; open(c) }
	})
	g := old.visit(t)
	g.asks(t, "COUNT\r\n", ":1\r\n")
	f, err := old.engine.Freeze(10*time.Second, old.thawer(t))
	if err != nil || f.Len() != 1 {
		t.Fatalf("%d frozen, %v", f.Len(), err)
	}
	if err := conn.Push([]byte(">0\r\n")); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if records := f.Records(); len(records) != 0 || f.Left() != 1 {
		t.Errorf("%d connections move, %d are left", len(records), f.Left())
	}
	f.GoOn()
	g.hears(t, ">0\r\n")
	if _, err := g.r.ReadByte(); err != io.EOF {
		t.Errorf("after Close: %v", err)
	}
}

// A move that fails leaves the connection in the old process, which goes on with it.
func TestMoveFails(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(s *Server)
		before func(next *house) error
		want   string // in the error of Add
	}{
		"ThawValue refuses": {change: func(s *Server) {
			s.ThawValue = func(*Conn, []byte) error { return errors.New("no room") }
		}, want: "no room"},
		"the other one drops": {},
		"the server has shut down": {before: func(next *house) error { return next.Shutdown(context.Background()) },
			want: ErrServerClosed.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			old, next := newHouse(t, nil), newHouse(t, tt.change)
			g := old.visit(t)
			g.asks(t, "COUNT\r\nSUBSCRIBE a\r\n", ":1\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
			here, records := old.freeze(t, 1)
			thawer := next.thawer(t)
			if tt.before != nil {
				if err := tt.before(next); err != nil {
					t.Fatal(err)
				}
			}
			there, err := next.thaw(t, records, thawer)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			there.Drop(nil)
			if tt.want == "" {
				next.expect(t, "moved")
			}
			if next.Conns() != 0 || next.pubsub.Publish("a", nil) != 0 {
				t.Errorf("the new process has %d connections", next.Conns())
			}
			here.GoOn()
			if n := old.pubsub.Publish("a", []byte("1")); n != 1 {
				t.Errorf("%d subscriptions", n)
			}
			g.hears(t, "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\n1\r\n")
		})
	}
}

// A server without the functions that move a program's values has no Thawer, and its connections
// stay.
func TestNoThawer(t *testing.T) {
	if _, err := new(Server).Thawer(); err == nil {
		t.Error("a server without FreezeValue has a Thawer")
	}
	plain := newHouse(t, func(s *Server) { s.FreezeValue = nil })
	plain.visit(t).asks(t, "PING\r\n", "+PONG\r\n")
	other := newHouse(t, nil)
	f, err := plain.engine.Freeze(0, other.thawer(t))
	if err != nil || f.Len() != 0 {
		t.Errorf("%d connections are frozen, %v", f.Len(), err)
	}
	f.GoOn()
}

// fuzzedServer is a server whose connections need no socket to be restored.
func fuzzedServer(t testing.TB) *live {
	t.Helper()
	e, err := myriad.Start(myriad.Config{Loops: 1, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Shutdown(context.Background()) })
	s := &Server{Engine: e, Logger: quiet(), Auth: func(*Conn, string, string) bool { return true },
		FreezeValue: func(c *Conn, dst []byte) ([]byte, error) { return append(dst, c.Value().(string)...), nil },
		ThawValue:   func(c *Conn, state []byte) error { c.SetValue(string(state)); return nil }}
	l, err := s.start()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// everyPart is a state with all parts.
func everyPart() []byte {
	full := written.Begin(nil, frozenVersion)
	for _, part := range []string{partValue, partUser, partName, partLibrary, partLibraryVer, partInput} {
		full.String(part, "*1\r\n")
	}
	for _, part := range []string{partNumber, partAuthed, partRESP3, partReplyOff, partSkip, partSkipping,
		partSubscribed, partTransaction, partOverflow, partLimit, partTimed} {
		full.Uint(part, 1)
	}
	return full.End()
}

// A state that an earlier version has written is read as what it was. A version that does not read
// it has another frozenFormat, and then it is refused before anything moves.
func TestStateOfVersions(t *testing.T) {
	text, err := os.ReadFile("testdata/resp-1.hex")
	if err != nil {
		t.Fatal(err)
	}
	state, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	l := fuzzedServer(t)
	if !slices.Contains((*thawer)(l).Formats(), "resp/1") {
		t.Skip("this version reads no resp/1")
	}
	c := &Conn{lane: l.lanes[0]}
	value, timed, err := c.restore(state)
	if err != nil {
		t.Fatal(err)
	}
	const bits = stateAuthed | stateRESP3 | stateReplyOff | stateSkip | stateSkipping | stateSubscribed |
		stateTransaction
	all := c.get()
	if string(value) != "*1\r\n" || !timed || c.number != 1 || c.state.Load() != bits || all.user != "*1\r\n" ||
		all.name != "*1\r\n" || all.library != [2]string{"*1\r\n", "*1\r\n"} || all.overflow != OverflowBlock ||
		all.limit != 1 || string(c.work.runner.cur.Bytes()) != "*1\r\n" {
		t.Errorf("value %q, timed %v, number %d, state %b, %+v", value, timed, c.number, c.state.Load(), all)
	}
	c.vanish()
}

// FuzzFrozen holds any state against its reader: it is refused, or the connection writes the same
// state again.
func FuzzFrozen(f *testing.F) {
	l := fuzzedServer(f)
	f.Add(everyPart())
	f.Add([]byte{frozenVersion})
	f.Fuzz(func(t *testing.T, state []byte) {
		c := &Conn{lane: l.lanes[0]}
		value, _, err := c.restore(state)
		if err != nil {
			return
		}
		c.SetValue(string(value))
		again, err := (*handler)(c).Freeze(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := &Conn{lane: l.lanes[0]}
		if _, _, err = d.restore(again); err != nil {
			t.Fatalf("%q is written as %q: %v", state, again, err)
		}
		if d.state.Load() != c.state.Load() || d.number != c.number {
			t.Errorf("state %b of %d, and again %b of %d", c.state.Load(), c.number, d.state.Load(), d.number)
		}
		c.vanish()
		d.vanish()
	})
}
