package resp

import (
	"fmt"
	"net"
	"testing"
	"time"

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
// publication. So its length is bounded.
func TestPatternsAreBounded(t *testing.T) {
	p := dial(t, serve(t, &Server{}))
	long := fmt.Sprintf("*[%s]", make([]byte, maxPattern))
	array := func(words ...string) string { return string(wire.AppendCommand(nil, words...)) }
	p.send(array("PSUBSCRIBE", "a", long, "b")).want("*3\r\n$10\r\npsubscribe\r\n$1\r\na\r\n:1\r\n" +
		"-ERR too many subscriptions, or a pattern that is too long\r\n")
	p.send("PUNSUBSCRIBE a\r\n").want("*3\r\n$12\r\npunsubscribe\r\n$1\r\na\r\n:0\r\n")
	p.send(array("PUBSUB", "CHANNELS", long)).want("-ERR the pattern is too long\r\n")
	p.send("PUBSUB NUMPAT\r\n").want(":0\r\n")
}
