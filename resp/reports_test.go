package resp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/resp/wire"
)

// These tests are of faults that users of other servers and clients have reported.

// A server that does not know HELLO, or not RESP3, is spoken to in RESP2, and authenticated to by
// AUTH.
func TestClientFallsBackToRESP2(t *testing.T) {
	for _, refusal := range []string{"-ERR unknown command `HELLO`, with args beginning with: `3`\r\n",
		"-ERR unknown command 'HELLO'\r\n", "-NOPROTO unsupported protocol version\r\n"} {
		c := &Client{Conns: 1, Password: "pw", DB: 2}
		var got []string
		w := newScriptedWorld(t, c, func(_ int, _ *sim.Peer, args []string) string {
			got = append(got, strings.Join(args, " "))
			if args[0] == "HELLO" {
				return refusal
			}
			return simple(args)
		})
		answer := ""
		c.Start(func(v Value, err error) { answer = fmt.Sprint(v, err) }, "ECHO", "x")
		w.RunFor(time.Second)
		want := []string{"HELLO 3 AUTH default pw", "AUTH pw", "SELECT 2", "ECHO x"}
		if !slices.Equal(got, want) || answer != "x <nil>" {
			t.Errorf("%q: the server gets %q, the answer is %q", refusal, got, answer)
		}
	}
}

// A server that has no room says so, and closes. That is the commands' error. None of them is sent:
// it would be lost.
func TestClientIsToldOfFullServer(t *testing.T) {
	c := &Client{Conns: 1}
	sent := false
	w := newScriptedWorld(t, c, func(_ int, p *sim.Peer, args []string) string {
		sent = sent || args[0] != "HELLO"
		p.Write([]byte("-ERR max number of clients reached\r\n"))
		p.Close()
		return ""
	})
	var answer error
	c.Start(func(_ Value, err error) { answer = err }, "INCR", "k")
	w.RunFor(time.Second)
	if sent || errors.Is(answer, ErrLost) || !strings.Contains(fmt.Sprint(answer),
		"ERR max number of clients reached") {
		t.Errorf("sent: %v, %v", sent, answer)
	}
}

// An error is a command's answer, whatever it says: the command is not sent again, nor is the
// connection replaced or downgraded.
func TestErrorsOfCommandsAreAnswers(t *testing.T) {
	c := &Client{Conns: 1}
	var got []string
	w := newScriptedWorld(t, c, func(_ int, _ *sim.Peer, args []string) string {
		got = append(got, args[0])
		if args[0] == "EVAL" {
			return "-" + args[1] + "\r\n"
		}
		return simple(args)
	})
	texts := []string{"NOPROTO unsupported protocol version", "ERR unknown command 'HELLO'", "LOADING wait",
		"NOAUTH no",
		"MOVED 1 127.0.0.1:1", "ERR max number of clients reached", "MASTERDOWN no", "CLUSTERDOWN no", "NOSCRIPT no"}
	for _, text := range texts {
		answer := errors.New("none")
		c.Start(func(_ Value, err error) { answer = err }, "EVAL", text)
		w.RunFor(time.Second)
		if answer != Error(text) {
			t.Errorf("%q: %v", text, answer)
		}
	}
	if n := len(got); n != 1+len(texts) || len(w.peers) != 1 {
		t.Errorf("%d commands on %d connections: %q", n, len(w.peers), got)
	}
}

// Each connection begins with all of the setup, and the connection of the subscriptions with all
// channels and patterns.
func TestClientSetsUpEachConnection(t *testing.T) {
	c := &Client{Conns: 1, Password: "pw", Username: "me", DB: 3, Name: "you"}
	got := map[int][]string{}
	w := newScriptedWorld(t, c, func(conn int, _ *sim.Peer, args []string) string {
		if args[0] != "PING" { // the connection is idle
			got[conn] = append(got[conn], strings.Join(args, " "))
		}
		if args[0] == "PSUBSCRIBE" {
			return ">3\r\n$10\r\npsubscribe\r\n" + string(wire.AppendBulk(nil, args[1])) + ":1\r\n"
		}
		return simple(args)
	})
	do := func() {
		c.Start(func(Value, error) {}, "ECHO", "x")
		w.RunFor(time.Second)
	}
	do()
	w.Go(func() { // the connection of subscriptions is the second one
		for _, subscribe := range []func(context.Context, func(string, []byte), ...string) (*Subscription, error){
			c.Subscribe, c.PSubscribe} {
			if _, err := subscribe(context.Background(), func(string, []byte) {}, "a"); err != nil {
				t.Error(err)
			}
		}
	})
	w.RunFor(time.Second)
	for range 2 {
		for _, p := range w.peers {
			p.Reset()
		}
		w.RunFor(time.Minute)
		do()
	}
	commands, subscriptions := 0, 0
	for conn, all := range got {
		switch setup := "HELLO 3 AUTH me pw,"; strings.Join(all, ",") {
		case setup + "SELECT 3,CLIENT SETNAME you,ECHO x":
			commands++
		case setup + "CLIENT SETNAME you,SUBSCRIBE a,PSUBSCRIBE a":
			subscriptions++
		default:
			t.Errorf("connection %d gets %q", conn, all)
		}
	}
	if commands != 3 || subscriptions != 3 {
		t.Errorf("%d connections of commands and %d of subscriptions, want 3 of each", commands, subscriptions)
	}
}

// A HELLO that fails changes nothing: not who the peer is, nor its name or protocol.
func TestHelloChangesAllOrNothing(t *testing.T) {
	addr := serve(t, &Server{Auth: func(_ *Conn, _, password string) bool { return password == "pw" }})
	for _, hello := range []string{"HELLO 3 AUTH default pw SETNAME \"a b\"", "HELLO 4 AUTH default pw",
		"HELLO 3 SETNAME x AUTH default no", "HELLO 3 SETNAME x AUTH default pw FOO", "HELLO 3 SETNAME x"} {
		p := dial(t, addr)
		p.send(hello + "\r\n")
		if line, err := p.r.ReadString('\n'); err != nil || line[0] != '-' {
			t.Errorf("%s: %q, %v", hello, line, err)
		}
		p.send("CLIENT GETNAME\r\n").want("-NOAUTH Authentication required.\r\n")
		p.send("AUTH pw\r\nCLIENT GETNAME\r\n").want("+OK\r\n$-1\r\n") // in RESP3 null is another one
	}
}

// A connection gets what it publishes itself, although its peer does not read before it has sent
// everything: the wait for room holds up only the commands behind it.
func TestConnectionPublishesToItself(t *testing.T) {
	for _, d := range []Dispatch{DispatchAuto, DispatchPool} {
		w := sim.New(1, sim.Calm())
		e, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		m := NewMux()
		new(PubSub).Register(m)
		s := &Server{Engine: e, Handler: m, Logger: quiet(), Dispatch: d, WriteLimit: 4 << 10}
		ln, err := s.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p := w.Dial(ln.Addr())
		p.StopReading()
		const messages = 300
		message := strings.Repeat("m", 10_000)
		in := wire.AppendCommand(nil, "HELLO", "3")
		in = wire.AppendCommand(in, "SUBSCRIBE", "c")
		for range messages {
			in = wire.AppendCommand(in, "PUBLISH", "c", message)
		}
		p.Write(in)
		w.RunFor(5 * time.Second)
		p.Resume()
		w.RunFor(time.Minute)
		got := p.TakeReceived()
		if n := bytes.Count(got, []byte(message)); n != messages || bytes.Count(got, []byte(":1\r\n")) != messages+2 {
			// besides the number of the connection and the confirmation
			t.Errorf("%v: %d messages of %d, %d bytes", d, n, messages, len(got))
		}
		p.Close()
		w.RunFor(time.Second)
		if err := errors.Join(s.Shutdown(context.Background()), e.Shutdown(context.Background())); err != nil {
			t.Error(err)
		}
		w.Run()
		w.Check(t)
	}
}

// The limit of a connection counts what waits, and not what its peer has read long ago.
func TestLimitCountsWhatWaits(t *testing.T) {
	conns := make(chan *Conn, 1)
	p := dial(t, serve(t, &Server{WriteLimit: 64 << 10, Overflow: OverflowClose, OnOpen: func(c *Conn) { conns <- c }}))
	c := <-conns
	message := wire.AppendBulk(nil, bytes.Repeat([]byte("m"), 60<<10))
	for range 50 {
		if err := c.Push(message); err != nil {
			t.Fatal(err)
		}
		p.want(string(message))
	}
}
