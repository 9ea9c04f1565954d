package clustertest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/websocket"
)

// client waits longer than an election takes.
var client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}

// A load publishes numbers to channels and has subscribers that check them.
type load struct {
	t     *testing.T
	nodes []*node
	ctx   context.Context
	stop  context.CancelFunc

	publishing  atomic.Bool
	published   []atomic.Int64 // the last number acknowledged, for each channel
	publishers  sync.WaitGroup
	subscribers sync.WaitGroup
	all         []*subscriber
	dial        *websocket.DialOptions
	retries     atomic.Int64
	slowest     atomic.Int64           // nanoseconds that a publication took
	outage      atomic.Pointer[outage] // the last one; nil before the first
	outages     []*outage
}

// start begins to publish `rate` numbers a second to `channels` channels, and subscribes.
func start(t *testing.T, nodes []*node, channels, subscribers, rate int) *load {
	t.Helper()
	l := &load{t: t, nodes: nodes, published: make([]atomic.Int64, channels)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l.dial = &websocket.DialOptions{Options: websocket.Options{Pull: true, Engine: engine}}
	t.Cleanup(func() {
		l.stop()
		l.publishers.Wait()
		l.subscribers.Wait()
		client.CloseIdleConnections()
		if err := engine.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	subscribed := new(sync.WaitGroup)
	for i := range subscribers {
		s := &subscriber{load: l, channel: i % channels, node: i % len(nodes)}
		l.all = append(l.all, s)
		subscribed.Add(1)
		l.subscribers.Go(func() { s.run(sync.OnceFunc(subscribed.Done)) })
	}
	subscribed.Wait()
	l.publishing.Store(true)
	for i := range channels {
		l.publishers.Go(func() { l.publish(i, time.Second*time.Duration(channels)/time.Duration(rate)) })
	}
	return l
}

// publish publishes 1, 2, 3, … to one channel. Each is sent until it is acknowledged, with one key.
func (l *load) publish(channel int, every time.Duration) {
	next := time.Now()
	var known *outage // its end for this channel is known
	for number := 1; l.publishing.Load(); number++ {
		began := time.Now()
		for try := 0; !l.send(channel, number, channel+number+try); try++ {
			l.retries.Add(1)
			if !l.sleep(20 * time.Millisecond) {
				return
			}
		}
		l.published[channel].Store(int64(number))
		if took := int64(time.Since(began)); took > l.slowest.Load() {
			l.slowest.Store(took)
		}
		if o := l.outage.Load(); o != known && began.After(o.at) {
			o.note(&o.accepted)
			known = o
		}
		next = next.Add(every)
		if late := time.Until(next); late > 0 {
			l.sleep(late)
		} else if late < -time.Second { // it does not make up for an election
			next = time.Now()
		}
	}
}

func (l *load) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// send reports whether a node has acknowledged the number. A node that hangs gets a second.
func (l *load) send(channel, number, node int) bool {
	ctx, cancel := context.WithTimeout(l.ctx, 3*time.Second)
	defer cancel()
	body := fmt.Sprintf(`{"channel":"c%d","data":%d,"idempotency_key":"%d"}`, channel, number, number)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"http://"+l.nodes[node%len(l.nodes)].public+"/api/publish", strings.NewReader(body))
	if err != nil {
		return false
	}
	answer, err := client.Do(r)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return err == nil && answer.StatusCode == http.StatusOK && strings.HasPrefix(string(text), `{"result":{"offset"`)
}

// A subscriber follows one channel, as a client library does: when its connection ends, it connects
// to the next node, and recovers from its position.
type subscriber struct {
	*load
	channel, node int

	last       int64 // the last number received
	offset     uint64
	epoch      string
	seen       atomic.Int64 // last, for others
	reconnects int
	failures   int           // attempts in a row that did not lead to a subscription
	away       time.Duration // at most, from the end of a subscription to the next one
	missed     *outage       // that has ended its subscription, until it gets the next publication
	lost       int           // numbers left out
	twice      int           // numbers that had been received, or came out of order
	gaps       int           // how often it was told that it could not recover
	latest     time.Time     // of what it has received
	pause      time.Duration // the longest between two publications
}

// reply is what a subscriber reads of the protocol.
type reply struct {
	ID        int
	Error     *struct{ Code int }
	Subscribe *struct {
		Recovered, WasRecovering bool
		Epoch                    string
		Offset                   uint64
		Publications             []publication
	}
	Push *struct {
		Pub         *publication
		Unsubscribe *struct{ Code int }
	}
}

type publication struct {
	Data   int64
	Offset uint64
}

// run backs off as client libraries do: by a random part of a time that doubles with every failure
// in a row.
func (s *subscriber) run(subscribed func()) {
	var ended time.Time // when the last subscription did
	var cut *outage     // that has ended it
	for first := true; s.ctx.Err() == nil; first = false {
		if !first {
			s.reconnects++
			s.node++
			s.sleep(time.Duration(rand.Int64N(int64(min(100*time.Millisecond<<min(s.failures, 10), 10*time.Second)))))
		}
		s.failures++
		s.follow(func() {
			s.failures = 0
			if !ended.IsZero() {
				s.away, ended = max(s.away, time.Since(ended)), time.Time{}
			}
			if cut != nil {
				cut.note(&cut.back)
				s.missed, cut = cut, nil
			}
			subscribed()
		})
		if s.failures == 0 {
			ended, cut = time.Now(), s.load.outage.Load().of(s.node%len(s.nodes))
		}
	}
	subscribed()
}

// silence is how long a subscriber waits for a message. The server pings more often.
const silence = 20 * time.Second

// pings is how often it does, as the option of a node. A client has two fifths of that to answer.
// With a shorter time a busy machine ends connections of nodes that are well.
const pings = "8s"

// follow connects and reads until the connection ends.
func (s *subscriber) follow(subscribed func()) {
	ctx, cancel := context.WithTimeout(s.ctx, silence)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws://"+s.nodes[s.node%len(s.nodes)].public+"/connection/websocket", s.dial)
	if err != nil {
		return
	}
	defer conn.Abort(nil)
	command := fmt.Sprintf(`{"channel":"c%d"}`, s.channel)
	if s.epoch != "" {
		command = fmt.Sprintf(`{"channel":"c%d","recover":true,"offset":%d,"epoch":%q}`, s.channel, s.offset, s.epoch)
	}
	hello := `{"id":1,"connect":{}}` + "\n" + `{"id":2,"subscribe":` + command + `}`
	if conn.Write(websocket.OpText, []byte(hello)) != nil {
		return
	}
	for {
		ctx, cancel := context.WithTimeout(s.ctx, silence)
		_, text, err := conn.Read(ctx)
		cancel()
		if err != nil {
			return
		}
		for line := range strings.Lines(string(text)) {
			if strings.TrimSpace(line) == "{}" { // a ping
				if conn.Write(websocket.OpText, []byte("{}")) != nil {
					return
				}
				continue
			}
			var r reply
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				s.t.Errorf("%v: %s", err, line)
				return
			}
			if !s.take(&r) {
				return
			}
			if r.Subscribe != nil {
				subscribed()
			}
		}
	}
}

// take handles one message. It returns false if the subscriber has to connect again.
func (s *subscriber) take(r *reply) bool {
	switch {
	case r.Error != nil || r.Push != nil && r.Push.Unsubscribe != nil:
		return false
	case r.Subscribe != nil:
		hello := r.Subscribe
		if s.epoch != "" && !hello.Recovered {
			s.gaps++
			s.last = 0 // the next one may be any
		}
		for _, p := range hello.Publications {
			s.receive(p)
		}
		s.epoch, s.offset = hello.Epoch, hello.Offset
	case r.Push != nil && r.Push.Pub != nil:
		s.receive(*r.Push.Pub)
		if s.missed != nil {
			s.missed.note(&s.missed.served)
			s.missed = nil
		}
	}
	return true
}

func (s *subscriber) receive(p publication) {
	now := time.Now()
	if !s.latest.IsZero() {
		s.pause = max(s.pause, now.Sub(s.latest))
	}
	s.latest = now
	switch {
	case s.last == 0 || p.Data == s.last+1:
	case p.Data <= s.last:
		s.twice++
	default:
		s.lost += int(p.Data - s.last - 1)
	}
	s.last, s.offset = p.Data, p.Offset
	s.seen.Store(p.Data)
}

// A count is what all subscribers have noticed.
type count struct{ published, reconnects, lost, twice, gaps, behind int }

// finish stops publishing, waits until the subscribers have everything, and counts.
func (l *load) finish() (c count) {
	l.t.Helper()
	l.publishing.Store(false)
	l.publishers.Wait()
	behind := func() (n int) {
		for _, s := range l.all {
			if s.seen.Load() < l.published[s.channel].Load() {
				n++
			}
		}
		return n
	}
	for deadline := time.Now().Add(patience / 2); behind() > 0 && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	c.behind = behind()
	l.stop()
	l.subscribers.Wait()
	for i := range l.published {
		c.published += int(l.published[i].Load())
	}
	for _, o := range l.outages {
		l.t.Log(o)
	}
	var away, pause time.Duration
	for _, s := range l.all {
		away, pause = max(away, s.away), max(pause, s.pause)
		c.reconnects += s.reconnects
		c.lost += s.lost
		c.twice += s.twice
		c.gaps += s.gaps
	}
	l.t.Logf("acknowledged %d, retries %d, the slowest took %v; %d subscribers reconnected %d times, within %v: "+
		"lost %d, twice or out of order %d, behind %d, not recovered %d; the longest pause was %v", c.published,
		l.retries.Load(),
		time.Duration(l.slowest.Load()).Round(time.Millisecond), len(l.all), c.reconnects,
		away.Round(time.Millisecond), c.lost, c.twice, c.behind, c.gaps, pause.Round(time.Millisecond))
	return c
}

// wantAll checks that nothing acknowledged was lost or came twice, and that every subscriber
// recovered.
func (c count) wantAll(t *testing.T) {
	t.Helper()
	if c.lost > 0 || c.twice > 0 || c.behind > 0 || c.gaps > 0 {
		t.Errorf("lost %d, twice or out of order %d, behind %d, not recovered %d; want 0, 0, 0, 0", c.lost, c.twice,
			c.behind, c.gaps)
	}
}
