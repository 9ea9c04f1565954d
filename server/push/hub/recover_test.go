package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/server/push/bus"
	"github.com/myriad-go/myriad/server/push/policy"
)

// keeping gives all channels recovery and a history of size publications.
func keeping(t *testing.T, size int) func(*Config) {
	return func(c *Config) {
		c.Rules = mustRules(t, policy.Namespace{HistorySize: size, HistoryAge: time.Minute, Recovery: true})
	}
}

// said is a line that a client has received, with the members that the tests read.
type said struct {
	ID        int
	Error     *struct{ Code int }
	Subscribe *struct {
		Recoverable, Positioned, Recovered bool
		WasRecovering                      bool `json:"was_recovering"`
		Epoch                              string
		Offset                             uint64
		Publications                       []saidPublication
	}
	Push *struct {
		Channel     string
		Pub         *saidPublication
		Unsubscribe *struct{ Code int }
	}
}

type saidPublication struct {
	Data   json.RawMessage
	Offset uint64
}

// said returns the lines that the peer has received since the last call.
func (f *fakeTransport) said(t *testing.T) (list []said) {
	t.Helper()
	for _, message := range f.Take() {
		for line := range strings.Lines(message) {
			var s said
			if err := json.Unmarshal([]byte(line), &s); err != nil {
				t.Fatalf("%v: %q", err, line)
			}
			list = append(list, s)
		}
	}
	return list
}

func (n *testNode) mustPublish(channel, data string) bus.Position {
	n.t.Helper()
	at, err := n.publish(context.Background(), channel, bus.Publication{Data: []byte(data)})
	if err != nil {
		n.t.Fatal(err)
	}
	return at
}

// recovers subscribes with a position and returns the reply.
func (f *fakeTransport) recovers(t *testing.T, at bus.Position) said {
	t.Helper()
	f.frame(fmt.Appendf(nil, `{"id":2,"subscribe":{"channel":"news","recover":true,"offset":%d,"epoch":%q}}`,
		at.Offset, at.Epoch))
	list := f.said(t)
	if len(list) != 1 || list[0].Subscribe == nil {
		t.Fatalf("recovering was answered with %+v", list)
	}
	return list[0]
}

func TestRecovery(t *testing.T) {
	n := newTestNode(t, keeping(t, 10), func(c *Config) { c.Limits.Recovered = 6 })
	c := n.dial()
	c.frame([]byte(connectAndSubscribe))
	first := c.said(t)[1].Subscribe
	if !first.Recoverable || !first.Positioned || first.Recovered || first.WasRecovering || first.Epoch == "" ||
		first.Offset != 0 {
		t.Fatalf("subscribing was answered with %+v", first)
	}
	start := bus.Position{Offset: 0, Epoch: first.Epoch}
	for i := range 4 {
		if at := n.mustPublish("news", strconv.Itoa(i+1)); at != (bus.Position{Offset: uint64(i + 1),
			Epoch: start.Epoch}) {
			t.Fatalf("publication %d is at %v", i+1, at)
		}
	}
	for i, s := range c.said(t) {
		if s.Push.Pub.Offset != uint64(i+1) {
			t.Errorf("publication %d has offset %d", i+1, s.Push.Pub.Offset)
		}
	}
	at := func(offset uint64) bus.Position { return bus.Position{Offset: offset, Epoch: start.Epoch} }
	check := func(name string, since bus.Position, recovered bool, want ...string) {
		t.Helper()
		c := n.connected()
		got := c.recovers(t, since).Subscribe
		var data []string
		for _, p := range got.Publications {
			data = append(data, string(p.Data))
		}
		if got.Recovered != recovered || !got.WasRecovering || strings.Join(data, " ") != strings.Join(want, " ") {
			t.Errorf("%s: %+v, want recovered %v with %v", name, got, recovered, want)
		}
		if got.Epoch != start.Epoch || got.Offset != n.top(t, "news") {
			t.Errorf("%s: at %d of %q", name, got.Offset, got.Epoch)
		}
		c.hangUp()
	}
	check("nothing missed", at(4), true)
	check("two missed", at(2), true, "3", "4")
	check("all missed", start, true, "1", "2", "3", "4")
	check("ahead of the server", at(5), false)
	check("another epoch", bus.Position{Offset: 2, Epoch: "other"}, false)
	check("no epoch, which is the current one", bus.Position{Offset: 2, Epoch: ""}, true, "3", "4")
	for i := 5; i <= 12; i++ {
		n.mustPublish("news", strconv.Itoa(i))
	}
	check("as many as a reply may hold", at(6), true, "7", "8", "9", "10", "11", "12")
	check("more than a reply may hold", at(5), false)
	check("more than is kept", at(1), false)
	n.clock.Advance(2 * time.Minute)
	check("too old", at(11), false)
	check("nothing missed", at(12), true)
}

// top returns the offset of the channel's last publication.
func (n *testNode) top(t *testing.T, channel string) uint64 {
	t.Helper()
	h, err := n.bus.History(context.Background(), n.Topic(channel), bus.Query{})
	if err != nil {
		t.Fatal(err)
	}
	return h.Top.Offset
}

func TestRecoveryInBytes(t *testing.T) {
	n := newTestNode(t, keeping(t, 100), func(c *Config) { c.Limits.Queue = 2000 })
	first := n.mustPublish("news", "1")
	for range 20 {
		n.mustPublish("news", `"`+strings.Repeat("x", 100)+`"`)
	}
	if got := n.connected().recovers(t, first).Subscribe; got.Recovered || len(got.Publications) > 0 {
		t.Errorf("more than the queue may hold was recovered: %+v", got)
	}
}

// A follower is a client that loses its connection now and then and recovers, as the client
// libraries do. It checks that it gets every publication once.
type follower struct {
	n    *testNode
	seen int // publications, which count up from 1
	at   bus.Position
	told int // how often the server told it to subscribe again
	lost int // how often it could not recover
}

// take checks what c has received, and reports whether c is still subscribed.
func (f *follower) take(t *testing.T, c *fakeTransport) bool { return f.check(t, c.said(t)) }

// check is take for lines that a client has received.
func (f *follower) check(t *testing.T, list []said) bool {
	subscribed := true
	for _, s := range list {
		switch {
		case s.Subscribe != nil && s.Subscribe.WasRecovering && !s.Subscribe.Recovered:
			f.lost++
			f.seen, f.at = int(s.Subscribe.Offset), bus.Position{Offset: s.Subscribe.Offset, Epoch: s.Subscribe.Epoch}
		case s.Subscribe != nil:
			for _, p := range s.Subscribe.Publications {
				f.next(t, p)
			}
			f.at.Epoch = s.Subscribe.Epoch
			if !s.Subscribe.WasRecovering {
				f.seen, f.at.Offset = int(s.Subscribe.Offset), s.Subscribe.Offset
			}
			if f.at.Offset != s.Subscribe.Offset {
				t.Errorf("recovered up to %d, the reply says %d", f.at.Offset, s.Subscribe.Offset)
			}
		case s.Push != nil && s.Push.Unsubscribe != nil:
			f.told++
			subscribed = false
		case s.Push != nil:
			f.next(t, *s.Push.Pub)
		case s.Error != nil:
			t.Errorf("error %+v", s.Error)
		}
	}
	return subscribed
}

func (f *follower) next(t *testing.T, p saidPublication) {
	f.seen++
	f.at.Offset = p.Offset
	if string(p.Data) != strconv.Itoa(f.seen) || p.Offset != uint64(f.seen) {
		t.Errorf("publication %s at %d, want %d", p.Data, p.Offset, f.seen)
		f.seen = int(p.Offset)
	}
}

func (f *follower) dial() *fakeTransport {
	c := f.n.dial()
	c.frame([]byte(`{"id":1,"connect":{}}`))
	f.subscribe(c)
	return c
}

func (f *follower) subscribe(c *fakeTransport) {
	if f.at.Epoch == "" {
		c.frame([]byte(`{"id":2,"subscribe":{"channel":"news"}}`))
		return
	}
	c.frame(fmt.Appendf(nil, `{"id":2,"subscribe":{"channel":"news","recover":true,"offset":%d,"epoch":%q}}`,
		f.at.Offset, f.at.Epoch))
}

// Clients that lose their connections while several goroutines publish get every publication once
// and in order. The publishers number the publications under a lock.
func TestRecoveryUnderLoad(t *testing.T) {
	n := newTestNode(t, keeping(t, 5000), func(c *Config) { c.Limits.Recovered = 5000 })
	const publications, followers = 3000, 6
	n.mustPublish("news", "1")
	var wg, publishing sync.WaitGroup
	var mu sync.Mutex
	next := 1
	for range 3 {
		publishing.Go(func() {
			for {
				mu.Lock()
				next++
				mine := next
				if mine <= publications {
					n.mustPublish("news", strconv.Itoa(mine))
				}
				mu.Unlock()
				if mine > publications {
					return
				}
			}
		})
	}
	for i := range followers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(i)))
			f := follower{n: n}
			for f.seen < publications {
				c := f.dial()
				for range random.IntN(20) {
					f.take(t, c)
				}
				c.hangUp()
				f.take(t, c) // receives what was in flight
			}
			if f.lost > 0 || f.seen != publications {
				t.Errorf("seen %d of %d, lost %d times", f.seen, publications, f.lost)
			}
		})
	}
	publishing.Wait()
	wg.Wait()
}

func TestHistoryCommand(t *testing.T) {
	n := newTestNode(t, keeping(t, 10))
	c := n.dial()
	c.frame([]byte(connectAndSubscribe))
	at := n.mustPublish("news", "1")
	n.mustPublish("news", `{"a":2}`)
	c.Take()
	for _, tt := range []struct{ name, ask, want string }{
		{"all", `{"channel":"news","limit":-1}`,
			`{"id":3,"history":{"publications":[{"data":1,"offset":1},{"data":{"a":2},"offset":2}],"epoch":"E",` +
				`"offset":2}}`},
		{"the position", `{"channel":"news"}`, `{"id":3,"history":{"publications":[],"epoch":"E","offset":2}}`},
		{"since", `{"channel":"news","limit":5,"since":{"offset":1,"epoch":"E"}}`,
			`{"id":3,"history":{"publications":[{"data":{"a":2},"offset":2}],"epoch":"E","offset":2}}`},
		{"reverse", `{"channel":"news","limit":1,"reverse":true}`,
			`{"id":3,"history":{"publications":[{"data":{"a":2},"offset":2}],"epoch":"E","offset":2}}`},
		{"another epoch", `{"channel":"news","limit":5,"since":{"offset":1,"epoch":"x"}}`,
			`{"id":3,"error":{"code":112,"message":"unrecoverable position"}}`},
		{"malformed name", `{"channel":"a\u0001","limit":5}`,
			`{"id":3,"error":{"code":103,"message":"permission denied"}}`},
	} {
		c.frame([]byte(`{"id":3,"history":` + strings.ReplaceAll(tt.ask, `"E"`, `"`+at.Epoch+`"`) + `}`))
		c.Want(t, tt.name, strings.ReplaceAll(tt.want, `"E"`, `"`+at.Epoch+`"`))
	}
}

// Publications without a position reach all members, but not the window of a joining client.
func TestPublicationsBesideTheHistory(t *testing.T) {
	at := func(offset uint64) bus.Publication {
		return bus.Publication{Data: []byte("1"), Position: bus.Position{Offset: offset, Epoch: "e"}}
	}
	beside := bus.Publication{Data: []byte("2")}
	ch := &channel{rules: &policy.Namespace{Recovery: true}, window: Window{readers: 1}}
	ch.window.Keep([]bus.Publication{beside, at(2), beside, at(9), beside})
	from := NewJoinPoint(bus.History{Top: bus.Position{Offset: 2, Epoch: "e"}}, ch.window.list)
	if len(ch.window.list) != 2 || len(from.Rest) != 1 || from.at != (bus.Position{Offset: 9, Epoch: "e"}) {
		t.Errorf("the window of a joining client has %v, of which it gets %v", ch.window.list, from.Rest)
	}
}
