package harness

import (
	"encoding/json"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A Work is an app without a server. At the command "work", with an Order as JSON, it does its work
// a number of times in the process, and answers with a Report as JSON. Its program is started like
// the others, listens on nothing and says so: "listening none control".
type Work func(o Order) (Report, error)

// An Order is what to do.
type Order struct {
	Times     int           // how often
	Sleep     time.Duration // of a task
	Capacity  int           // tasks at the same time, at most; a pool's size
	Producers int           // goroutines that submit tasks
	Watch     bool          // report Most, which costs time
	Input     []byte        // of an upgrade: the request
}

// A Report is what was done, as far as only the process itself knows it.
type Report struct {
	Done       int    // so often, to its end
	Most       int    // tasks at the same time, if watched
	Goroutines int    // at the same time, of a client; 0: not counted
	Mallocs    uint64 // allocations
	Bytes      uint64 // allocated
	Output     []byte // of the last upgrade: the answer
	// Took is the part of the time that counts; 0: all of it.
	Took time.Duration
}

func (w Work) command(text string) string {
	var o Order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var r Report
		if r, err = w(o); err == nil {
			runtime.ReadMemStats(&after)
			r.Mallocs, r.Bytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
			var answer []byte
			if answer, err = json.Marshal(r); err == nil {
				return string(answer)
			}
		}
	}
	return fmt.Sprintf("error: %v", err)
}

// A Pool is how tasks are handed to whatever runs them.
type Pool struct {
	Submit    func(f func())    // waits for room
	SubmitAll func(fs []func()) // the same for several at once; nil: one after the other
	Close     func()
}

// batch is how many tasks a pool that takes several at once is given.
const batch = 64

// Tasks is a Work that submits tasks to a pool which is made for each order, and ends when all of
// them have.
func Tasks(open func(o Order) (Pool, error)) Work {
	return func(o Order) (Report, error) {
		pool, err := open(o)
		if err != nil {
			return Report{}, err
		}
		t := &tasks{left: int64(o.Times), ended: make(chan struct{}), sleep: o.Sleep}
		f := t.plain
		if o.Watch {
			f = t.watched
		}
		var producers sync.WaitGroup
		for i, n := 0, max(o.Producers, 1); i < n; i++ {
			producers.Go(func() { produce(pool, f, o.Times*(i+1)/n-o.Times*i/n) })
		}
		producers.Wait()
		<-t.ended
		if pool.Close != nil {
			pool.Close()
		}
		return Report{Done: o.Times - int(atomic.LoadInt64(&t.left)), Most: int(t.most.Load())}, nil
	}
}

func produce(pool Pool, f func(), n int) {
	if pool.SubmitAll == nil {
		for range n {
			pool.Submit(f)
		}
		return
	}
	fs := make([]func(), batch)
	for i := range fs {
		fs[i] = f
	}
	for ; n > 0; n -= batch {
		pool.SubmitAll(fs[:min(n, batch)])
	}
}

// tasks are those of one order. They are counted by themselves, because a pool may lose one.
type tasks struct {
	left  int64
	ended chan struct{}
	sleep time.Duration
	now   atomic.Int64
	most  atomic.Int64
}

func (t *tasks) plain() {
	if t.sleep > 0 {
		time.Sleep(t.sleep)
	}
	if atomic.AddInt64(&t.left, -1) == 0 {
		close(t.ended)
	}
}

func (t *tasks) watched() {
	now := t.now.Add(1)
	for most := t.most.Load(); now > most && !t.most.CompareAndSwap(most, now); most = t.most.Load() {
	}
	if t.sleep > 0 {
		time.Sleep(t.sleep)
	}
	t.now.Add(-1)
	if atomic.AddInt64(&t.left, -1) == 0 {
		close(t.ended)
	}
}
