package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/myriad-go/myriad/websocket"
)

const (
	failoverPublishers = 20
	failoverRate       = 500 // publications per second in all
	failoverBefore     = 2 * time.Second
	failoverPatience   = time.Minute
)

var failing struct {
	sync.Mutex
	*cluster
}

// failover kills the first node of three under load. Took is the time until all of its subscribers
// are subscribed to the others. Done are the subscribers, of all nodes, that got everything once
// and in order.
func failover(o harness.Order) (report harness.Report, err error) {
	failing.Lock()
	defer failing.Unlock()
	if failing.cluster == nil {
		if failing.cluster, err = startCluster(rules{kept: true, recovers: true}); err != nil {
			return report, err
		}
	}
	f, err := newFollowing(failing.cluster, o.Times)
	if err != nil {
		return report, err
	}
	report.Took, err = f.run()
	report.Done = f.end()
	if err != nil {
		return report, err
	}
	first := failing.nodes[0]
	if err := first.start(); err != nil {
		return report, err
	}
	return report, failing.await()
}

// A following is subscribers of three nodes, and publishers.
type following struct {
	nodes       []*node
	ctx         context.Context
	stop        context.CancelFunc
	dial        *websocket.DialOptions
	engine      *myriad.Engine
	subscribers []*subscriber
	running     sync.WaitGroup

	publishing atomic.Bool
	published  []atomic.Int64 // the last number acknowledged, for each channel
	publishers sync.WaitGroup
	round      int64 // makes the channels of each run its own
}

func newFollowing(c *cluster, subscribers int) (*following, error) {
	engine, err := myriad.Start(myriad.Config{})
	if err != nil {
		return nil, err
	}
	f := &following{nodes: c.nodes, engine: engine, published: make([]atomic.Int64, max(subscribers/3, 1)),
		round: time.Now().UnixNano()}
	f.ctx, f.stop = context.WithCancel(context.Background())
	f.dial = &websocket.DialOptions{Options: websocket.Options{Pull: true, Engine: engine}}
	for i := range subscribers {
		f.subscribers = append(f.subscribers, &subscriber{following: f, channel: i / 3 % len(f.published), node: i % 3,
			home: i % 3})
	}
	return f, nil
}

func (f *following) name(channel int) string { return fmt.Sprintf("c%d-%d", f.round, channel) }

// run returns how long the subscribers of the killed node were away.
func (f *following) run() (time.Duration, error) {
	for _, s := range f.subscribers {
		f.running.Go(s.run)
	}
	if err := f.await("subscribed", func(s *subscriber) bool { return s.joined.Load() > 0 }); err != nil {
		return 0, err
	}
	f.publishing.Store(true)
	for i := range failoverPublishers {
		f.publishers.Go(func() { f.publish(i) })
	}
	time.Sleep(failoverBefore)
	killed := time.Now()
	if err := f.nodes[0].kill(); err != nil {
		return 0, err
	}
	err := f.await("recovered", func(s *subscriber) bool { return s.home != 0 || s.joined.Load() > 1 })
	took := time.Since(killed)
	f.publishing.Store(false)
	f.publishers.Wait()
	if err != nil {
		return took, err
	}
	return took, f.await("up to date", func(s *subscriber) bool {
		return s.seen.Load() >= f.published[s.channel].Load()
	})
}

func (f *following) await(what string, so func(*subscriber) bool) error {
	missing := 0
	for end := time.Now().Add(failoverPatience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		missing = 0
		for _, s := range f.subscribers {
			if !so(s) {
				missing++
			}
		}
		if missing == 0 {
			return nil
		}
	}
	return fmt.Errorf("%d of %d subscribers are not %s in %v", missing, len(f.subscribers), what, failoverPatience)
}

// end returns how many subscribers have everything, once.
func (f *following) end() (right int) {
	f.publishing.Store(false)
	f.stop()
	f.publishers.Wait()
	f.running.Wait()
	client.CloseIdleConnections()
	_ = f.engine.Shutdown(context.Background()) // all of its connections have ended
	for _, s := range f.subscribers {
		if !s.wrong && s.seen.Load() >= f.published[s.channel].Load() {
			right++
		}
	}
	return right
}

// publish publishes 1, 2, 3, … to every twentieth channel, each until it is acknowledged.
func (f *following) publish(first int) {
	tick := time.NewTicker(time.Second * failoverPublishers / failoverRate)
	defer tick.Stop()
	for number := int64(1); ; number++ {
		for channel := first; channel < len(f.published); channel += failoverPublishers {
			for try := 1; !f.send(channel, number, f.nodes[1+(channel+try)%2]); try++ {
				if f.ctx.Err() != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
			f.published[channel].Store(number)
			<-tick.C
			if !f.publishing.Load() {
				return
			}
		}
		if first >= len(f.published) {
			return
		}
	}
}

// send reports whether the node has acknowledged a number.
func (f *following) send(channel int, number int64, to *node) bool {
	ctx, cancel := context.WithTimeout(f.ctx, 3*time.Second)
	defer cancel()
	body := fmt.Sprintf(`{"channel":%q,"data":%d,"idempotency_key":"%d"}`, f.name(channel), number, number)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to.public+"/api/publish",
		strings.NewReader(body))
	if err != nil {
		return false
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return err == nil && answer.StatusCode == http.StatusOK && strings.HasPrefix(string(text), `{"result":{"offset"`)
}
