package resp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
	"github.com/myriad-go/myriad/internal/outbox"
	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/resp/wire"
)

// No message comes behind the confirmation of an UNSUBSCRIBE, or behind RESET: a client in RESP2
// would take it for the reply to its next command. Neither a publication that has begun before nor
// messages that wait for room are sent then.
func TestNoMessageBehindUnsubscribe(t *testing.T) {
	for _, tt := range []struct{ begin, end, confirms string }{
		{"SUBSCRIBE a", "UNSUBSCRIBE a", "unsubscribe"}, {"SUBSCRIBE a", "UNSUBSCRIBE", "unsubscribe"},
		{"PSUBSCRIBE a*", "PUNSUBSCRIBE a*", "punsubscribe"}, {"SUBSCRIBE a", "RESET", "RESET"},
	} {
		for policy := range outbox.Policies {
			t.Run(fmt.Sprint(tt.end, " ", policy), func(t *testing.T) {
				var channels PubSub
				m := NewMux()
				channels.Register(m)
				p := dial(t, serve(t, &Server{Handler: m, Overflow: policy, WriteLimit: 4 << 10, PushTimeout: 1}))
				p.send(tt.begin + "\r\n")
				p.value()
				begun := channels.receivers(nil, "a")
				message := make([]byte, 1000)
				if policy.Queues() {
					for range 10_000 { // more than what the kernel takes
						channels.Publish("a", message)
					}
				}
				p.send(tt.end + "\r\n")
				for {
					v := p.value()
					if v.Text() == tt.confirms || len(v.Elems) > 0 && v.Elems[0].Text() == tt.confirms {
						break
					}
				}
				(&publication{channel: "a", message: message}).deliver(begun)
				p.send("PING\r\n")
				if v := p.value(); v.Text() != "PONG" {
					t.Errorf("behind it: %.60q", v)
				}
				if n := len(begun); n != 1 {
					t.Errorf("there were %d receivers", n)
				}
			})
		}
	}
}

// A connection that ends while it subscribes leaves nothing behind, and holds up no one.
func TestSubscribeBesideEnd(t *testing.T) {
	var channels PubSub
	m := NewMux()
	channels.Register(m)
	begun, closed, subscribed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	m.Handle("LATE", 1, func(w *Reply, c *Command) {
		close(begun)
		<-closed
		channels.subscribe(w, &Command{Conn: c.Conn, Args: [][]byte{nil, []byte("a"), []byte("b")}}, byChannel)
		close(subscribed)
	}, "Subscribe when the connection has ended.")
	addr := serve(t, &Server{Handler: m, OnClose: func(*Conn, error) { close(closed) }})
	p := dial(t, addr)
	p.send("LATE\r\n")
	<-begun
	_ = p.Conn.(*net.TCPConn).SetLinger(0) // a reset: a FIN would wait for the command
	p.Close()
	select {
	case <-subscribed:
	case <-time.After(soak.Patience(20 * time.Second)):
		t.Fatal("SUBSCRIBE does not return")
	}
	if n := channels.Publish("a", nil); n != 0 || len(channels.conns) != 0 {
		t.Errorf("%d receivers, %d connections", n, len(channels.conns))
	}
}

// A pattern costs as many steps as it has bytes for each byte of a channel's name, in every
// publication. So all of that is bounded.
func TestPatternsAreBounded(t *testing.T) {
	p := dial(t, serve(t, &Server{}))
	long := fmt.Sprintf("*[%s]", make([]byte, maxPattern))
	array := func(words ...string) string { return string(wire.AppendCommand(nil, words...)) }
	p.send(array("PSUBSCRIBE", "a", long, "b")).want("*3\r\n$10\r\npsubscribe\r\n$1\r\na\r\n:1\r\n" +
		tooMany)
	p.send("PUNSUBSCRIBE a\r\n").want("*3\r\n$12\r\npunsubscribe\r\n$1\r\na\r\n:0\r\n")
	p.send(array("PUBSUB", "CHANNELS", long)).want("-ERR the pattern is too long\r\n")
	p.send("PUBSUB NUMPAT\r\n").want(":0\r\n")
	name := strings.Repeat("c", maxChannel)
	p.send(array("PUBLISH", name+"c", "x")).want(":0\r\n")
	p.send(array("SUBSCRIBE", name+"c")).want(tooMany)
	p.send(array("SUBSCRIBE", name)).want(string(wire.AppendInt(wire.AppendBulk([]byte("*3\r\n$9\r\nsubscribe\r\n"),
		name), 1)))
}

// All patterns together are bounded, also when some of them have ended.
func TestPatternsTogetherAreBounded(t *testing.T) {
	var channels PubSub
	m := NewMux()
	channels.Register(m)
	p := dial(t, serve(t, &Server{Handler: m}))
	confirmed := func(word string, name []byte, n int) string {
		return string(wire.AppendInt(wire.AppendBulk(wire.AppendBulk([]byte("*3\r\n"), word), name), int64(n)))
	}
	for range 2 {
		for i := range allPatterns / maxPattern {
			name := fmt.Appendf(nil, "%0*d", maxPattern, i)
			p.send(string(wire.AppendCommand(nil, []byte("PSUBSCRIBE"), name))).want(confirmed("psubscribe", name, i+1))
		}
		p.send("PSUBSCRIBE x\r\n").want(tooMany)
		for i := allPatterns / maxPattern; i > 0; i-- {
			name := fmt.Appendf(nil, "%0*d", maxPattern, i-1)
			p.send(string(wire.AppendCommand(nil, []byte("PUNSUBSCRIBE"), name))).want(confirmed("punsubscribe", name,
				i-1))
		}
	}
	channels.mu.Lock()
	defer channels.mu.Unlock()
	if channels.bytes != [2]int{} {
		t.Errorf("%d bytes of names are left", channels.bytes)
	}
}

const tooMany = "-ERR too many subscriptions, or a name that is too long\r\n"

// Subscribers that do not read at all hold up no other one, and a publisher no longer than once for
// PushTimeout. When they read again, they get what is published from then on.
func TestStuckSubscribersHoldUpNoOther(t *testing.T) {
	w := sim.New(1, sim.Calm())
	e, err := myriad.Start(myriad.Config{Loops: 2, System: w, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	const messages, timeout = 40, 10 * time.Second
	var channels PubSub
	m := NewMux()
	channels.Register(m)
	s := &Server{Engine: e, Handler: m, Logger: quiet(), WriteLimit: 4 << 10, PushTimeout: timeout}
	ln, err := s.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	peers := make([]*sim.Peer, 6) // the last one reads
	for i := range peers {
		peers[i] = w.Dial(ln.Addr())
		peers[i].Write(wire.AppendCommand(nil, "SUBSCRIBE", "c"))
	}
	w.RunFor(time.Second)
	for _, p := range peers[:5] {
		p.StopReading()
	}
	message := bytes.Repeat([]byte("m"), 100_000)
	var longest, all time.Duration
	w.Go(func() {
		for range messages {
			begun := w.Now()
			peers[5].OnReceived = func([]byte) { longest = max(longest, w.Now().Sub(begun)) }
			channels.Publish("c", message)
			all += w.Now().Sub(begun)
		}
	})
	w.RunFor(time.Hour)
	if got := bytes.Count(peers[5].TakeReceived(), message); got != messages || longest > time.Second ||
		all > timeout+time.Second {
		t.Errorf("%d of %d messages have come, one of them behind %v; the publisher took %v", got, messages, longest,
			all)
	}
	for _, p := range peers {
		p.Resume()
	}
	w.RunFor(time.Second)
	w.Go(func() { channels.Publish("c", []byte("last")) })
	w.RunFor(time.Second)
	for i, p := range peers {
		if in := p.TakeReceived(); !bytes.HasSuffix(in, []byte("last\r\n")) {
			t.Errorf("subscriber %d got %d bytes, and not the last message", i, len(in))
		}
		p.Close()
	}
	if err := errors.Join(s.Close(), e.Shutdown(context.Background())); err != nil {
		t.Error(err)
	}
	w.Run()
	w.Check(t)
}
