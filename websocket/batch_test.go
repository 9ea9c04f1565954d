package websocket

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/workers"
)

// A counter is a pool that takes so many functions of a batch at most.
type counter struct {
	*workers.Pool
	most int

	mu       sync.Mutex
	together []int // what it was given in each batch
	alone    int   // and besides
}

func (p *counter) TryGo(f func()) bool {
	p.mu.Lock()
	p.alone++
	p.mu.Unlock()
	return p.Pool.TryGo(f)
}

func (p *counter) TryGoAll(fs []func()) int {
	p.mu.Lock()
	p.together = append(p.together, len(fs))
	p.mu.Unlock()
	return p.Pool.TryGoAll(fs[:min(len(fs), p.most)])
}

// The messages of one turn are brought to the pool together, those of one connection as one; what
// the pool does not take is brought again.
func TestBatchOfATurn(t *testing.T) {
	const conns, perConn = 10, 3
	for _, most := range []int{conns, 4, 0} {
		e := startEngine(t, myriad.Config{Loops: 1})
		var wg sync.WaitGroup
		wg.Add(conns * perConn)
		open := make(chan *Conn, conns)
		o := &Options{Dispatch: web.DispatchPool, OnOpen: func(c *Conn) { open <- c },
			OnMessage: func(*Conn, Op, []byte) { wg.Done() }}
		s, err := o.settings()
		must(t, err)
		pool := &counter{Pool: startPool(t), most: conns}
		s.tasks.UsePool(pool)
		addr := listen(t, e, Handler(o))
		var all []*Conn
		for range conns {
			dialRaw(t, addr).open()
			all = append(all, <-open)
		}
		for _, c := range all { // whose OnOpen has returned
			for waiting := true; waiting; runtime.Gosched() {
				c.mu.Lock()
				waiting = c.backlog != nil
				c.mu.Unlock()
			}
		}
		before := len(pool.together)
		pool.most = most
		turn := func() {
			for range perConn {
				for _, c := range all {
					c.message(message{op: OpText, payload: []byte("x")})
				}
			}
		}
		must(t, e.Loops()[0].Do(turn))
		wg.Wait()
		pool.mu.Lock()
		if got := pool.together[before:]; !slices.Equal(got, []int{conns}) || pool.alone != conns-most {
			t.Errorf("a pool that takes %d was given batches of %v and %d alone, want %d and %d", most, got, pool.alone,
				conns, conns-most)
		}
		pool.mu.Unlock()
	}
}
