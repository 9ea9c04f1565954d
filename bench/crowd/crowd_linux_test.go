package crowd

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// asClients makes the test program a process of clients.
const asClients = "MYRIAD_CROWD_CLIENTS"

func TestMain(m *testing.M) {
	if os.Getenv(asClients) != "" {
		Main()
		return
	}
	os.Exit(m.Run())
}

// A peer is a connection of a client, as a server has it.
type peer struct {
	net.Conn
	in *bufio.Reader
}

// accept takes a client in, up to its join, and answers that in pieces.
func accept(t *testing.T, ln net.Listener) *peer {
	t.Helper()
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	p := &peer{c, bufio.NewReader(c)}
	r, err := http.ReadRequest(p.in)
	if err != nil || r.Header.Get("Upgrade") != "websocket" {
		t.Fatal(r, err)
	}
	p.say(t, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: webso")
	p.say(t, "cket\r\n\r\n")
	for _, want := range []string{`{"id":1,"connect":{}}`, `{"id":2,"subscribe":{"channel":"news"}}`} {
		if got := p.next(t); got != want {
			t.Fatalf("the client says %q, want %q", got, want)
		}
	}
	p.say(t, string(served(`{"id":1,"connect":{"client":"a"}}`)))
	p.say(t, string(served(`{"id":2,"subscribe":{}}`)))
	return p
}

// served is a text frame of a server.
func served(payload string) []byte {
	return append([]byte{0x81, byte(len(payload))}, payload...)
}

func (p *peer) say(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(p, text); err != nil {
		t.Fatal(err)
	}
}

// next is the next message of the client.
func (p *peer) next(t *testing.T) string {
	t.Helper()
	head := make([]byte, 6)
	if _, err := io.ReadFull(p.in, head); err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, head[1]&0x7f)
	if _, err := io.ReadFull(p.in, payload); err != nil {
		t.Fatal(err)
	}
	for i := range payload {
		payload[i] ^= head[2+i%4]
	}
	return string(payload)
}

// A stepper is a group at work on a goroutine.
type stepper struct {
	mu    sync.Mutex
	group *group
	all   Report
	stop  chan struct{}
	over  sync.WaitGroup
}

// begin runs a group of clients until the test ends.
func begin(t *testing.T, ln net.Listener, talk Talk, n int) *stepper {
	t.Helper()
	g, err := newGroup(Spec{Addr: ln.Addr().String(), Sources: []string{"127.0.0.2", "127.0.0.3"}, Most: n,
		Opening: 2, Wait: time.Minute, Talk: talk})
	if err != nil {
		t.Fatal(err)
	}
	s := &stepper{group: g, stop: make(chan struct{})}
	g.obey(Order{Clients: n})
	s.over.Go(func() {
		defer g.close()
		for {
			select {
			case <-s.stop:
				return
			default:
			}
			s.mu.Lock()
			if err := g.step(); err != nil {
				t.Error(err)
			}
			one := g.report()
			s.all.Held, s.all.Opening, s.all.Silent = one.Held, one.Opening, one.Silent
			s.all.happened(one)
			s.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		close(s.stop)
		s.over.Wait()
	})
	return s
}

// until waits until all that has happened satisfies done.
func (s *stepper) until(t *testing.T, what string, done func(Report) bool) Report {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		s.mu.Lock()
		all := s.all
		s.mu.Unlock()
		switch {
		case done(all):
			return all
		case time.Now().After(deadline):
			t.Fatalf("%s: %+v", what, all)
		}
		time.Sleep(time.Millisecond)
	}
}

func (s *stepper) order(o Order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.group.obey(o)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// Clients answer pings, come back when they were ended, and are found when they have died.
func TestClients(t *testing.T) {
	ln := listen(t)
	s := begin(t, ln, JSON, 3)
	var peers []*peer
	for range 3 {
		peers = append(peers, accept(t, ln))
	}
	s.until(t, "all are in", func(r Report) bool { return r.Held == 3 && r.Opening == 0 })
	frame := string(served("{}"))
	peers[0].say(t, frame[:1]) // a ping in pieces
	peers[0].say(t, frame[1:]+frame)
	peers[1].say(t, string(served("{}\n"+`{"push":{}}`))) // a ping beside another message
	peers[2].say(t, "\x89\x02hi")                         // a ping of the WebSocket
	for i, want := range []string{"{}", "{}", "hi"} {
		if got := peers[i].next(t); got != want {
			t.Errorf("client %d answers %q, want %q", i, got, want)
		}
	}
	if got := peers[0].next(t); got != "{}" {
		t.Errorf("the second ping is answered by %q", got)
	}
	peers[0].say(t, string([]byte{0x88, 9, 0x0b, 0xc4})+"no pong")
	peers[1].Close()
	back := []*peer{accept(t, ln), accept(t, ln)}
	all := s.until(t, "both are back", func(r Report) bool { return r.Held == 3 })
	if all.Connected != 5 || all.Ended != 2 || all.Failed != 0 || all.Answered != 4 ||
		all.Reasons["close 3012 no pong"] != 1 {
		t.Errorf("%+v", all)
	}
	s.order(Order{Clients: 3, Die: 2})
	s.until(t, "two are dead", func(r Report) bool { return r.Silent == 2 && r.Held == 1 })
	for _, p := range append(back, peers[2]) { // the dead ones do not answer
		p.say(t, frame)
	}
	back[0].say(t, string([]byte{0x88, 2, 0x0b, 0xc4})) // it stays open
	for _, p := range append(back[1:], peers[2]) {
		p.Close()
	}
	again := accept(t, ln) // the one that lives
	all = s.until(t, "both are found", func(r Report) bool { return r.Found == 2 && r.Held == 1 })
	if all.Silent != 0 || all.Slowest <= 0 || all.Ended != 3 || all.Answered > 5 {
		t.Errorf("%+v", all)
	}
	s.order(Order{})
	if _, err := again.in.ReadByte(); err == nil {
		t.Error("a client that is not wanted any more stays")
	}
}

// A client that the server does not let in tries again.
func TestRefused(t *testing.T) {
	ln := listen(t)
	s := begin(t, ln, Events, 1)
	for _, answer := range []string{"HTTP/1.1 503 Busy\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"} {
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, answer); err != nil {
			t.Fatal(err)
		}
	}
	all := s.until(t, "it is in", func(r Report) bool { return r.Held == 1 })
	if all.Failed != 1 || all.Ended != 0 || all.Connected != 1 || all.Reasons[`the answer "HTTP/1.1 503 Busy"`] != 1 {
		t.Errorf("%+v", all)
	}
}

// A fleet shares its orders, and says what has happened in all of its processes.
func TestFleet(t *testing.T) {
	t.Setenv(asClients, "1")
	ln := listen(t)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
					_, _ = io.Copy(io.Discard, c)
				}
			}()
		}
	}()
	spec := Spec{Addr: ln.Addr().String(), Most: 10, Opening: 3, Wait: time.Minute, Every: time.Millisecond,
		Talk: Events}
	f, err := Start([]string{os.Args[0]}, []Spec{spec, spec, spec})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Order(Order{Clients: 10, Rate: 1e6}); err != nil {
		t.Fatal(err)
	}
	var all Report
	for deadline := time.Now().Add(time.Minute); all.Held < 10 && time.Now().Before(deadline); {
		one, err := f.Look()
		if err != nil {
			t.Fatal(err)
		}
		all.Held = one.Held
		all.happened(one)
		time.Sleep(time.Millisecond)
	}
	if all.Held != 10 || all.Connected != 10 || all.Failed != 0 {
		t.Errorf("%+v", all)
	}
	if _, err := Start([]string{os.Args[0] + ".missing"}, []Spec{spec}); err == nil {
		t.Error("a program that is missing was started")
	}
	bad, err := Start([]string{os.Args[0]}, []Spec{{Addr: "nowhere"}})
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close()
	<-bad.processes[0].ended
	if _, err := bad.Look(); err == nil {
		t.Error("a process without a server goes on")
	}
}

// The parts of an order add up to it.
func TestShare(t *testing.T) {
	for n := 1; n < 9; n++ {
		sum := Order{}
		for i := range n {
			one := Order{Clients: 1003, Rate: 10, Die: 5}.share(i, n)
			sum.Clients += one.Clients
			sum.Die += one.Die
			sum.Rate += one.Rate
		}
		if sum.Clients != 1003 || sum.Die != 5 || sum.Rate < 9.99 || sum.Rate > 10.01 {
			t.Errorf("%d processes have %+v", n, sum)
		}
	}
}

// Whatever comes, frames are read within what has come, and any split reads the same.
func FuzzFrames(f *testing.F) {
	for _, text := range []string{"\x81\x02{}", "\x88\x02\x0b\xc4\x81\x7e\x00\x80" + strings.Repeat("x", 128),
		"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", "\x81\x82aaaa", "\x82\x03\x00\x05a"} {
		f.Add([]byte(text), uint(1))
	}
	f.Fuzz(func(t *testing.T, p []byte, at uint) {
		whole := frames(p, len(p))
		split := frames(p, int(at%uint(len(p)+1)))
		if !bytes.Equal(whole, split) {
			t.Errorf("%q split at %d: %q, not %q", p, at, split, whole)
		}
	})
}

// frames reads p, of which the first part comes alone, and returns the messages that were found.
func frames(p []byte, first int) (found []byte) {
	tail := []byte{}
	for _, part := range [][]byte{p[:first], p[first:]} {
		tail = append(tail, part...)
		for {
			opcode, payload, size, err := nextFrame(tail)
			if err != nil {
				return append(found, "error"...)
			}
			if size == 0 {
				break
			}
			for len(payload) > 0 {
				var one []byte
				one, payload = nextMessage(opcode, payload)
				found = append(append(found, one...), '|')
			}
			tail = tail[size:]
		}
	}
	return found
}
