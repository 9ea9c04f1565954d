package clustertest

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"
)

// An outage is the time after a node was killed. It collects how long each client and each channel
// was affected, counted from the kill.
type outage struct {
	node int
	at   time.Time

	mu       sync.Mutex
	back     []time.Duration // until a client of the node was subscribed to another one
	served   []time.Duration // until such a client received a publication that it had not missed
	accepted []time.Duration // until a channel's next publication was acknowledged
}

// kill kills a node and returns when its process has ended.
func (l *load) kill(node int) {
	o := &outage{node: node, at: time.Now()}
	l.outage.Store(o)
	l.outages = append(l.outages, o)
	l.nodes[node].signal(syscall.SIGKILL)
	l.nodes[node].wait()
}

// of returns the outage if it is that of the node, or nil.
func (o *outage) of(node int) *outage {
	if o == nil || o.node != node {
		return nil
	}
	return o
}

// note adds the time since the kill to one of the lists.
func (o *outage) note(list *[]time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	*list = append(*list, time.Since(o.at))
}

func (o *outage) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return fmt.Sprintf("n%d killed: %d of its clients back %s, next publication %s; channels take publications %s",
		o.node+1, len(o.back), spread(o.back), spread(o.served), spread(o.accepted))
}

// spread describes how times are distributed.
func spread(list []time.Duration) string {
	if len(list) == 0 {
		return "never"
	}
	slices.Sort(list)
	at := func(part float64) time.Duration {
		return list[int(part*float64(len(list)-1))].Round(time.Millisecond)
	}
	return fmt.Sprintf("after %v (p50), %v (p99), %v (all)", at(0.5), at(0.99), at(1))
}
