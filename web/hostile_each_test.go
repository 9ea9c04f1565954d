package web

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/myriad-go/myriad/buf"
	"github.com/myriad-go/myriad/workers"
)

// Each attack by itself, with nothing but the defaults: healthy clients are answered meanwhile, and twenty attackers leave less than 13 kB each,
// no descriptor, no block and no handler. A second wave is held against the first, which may leave tables and pools larger.
func TestEachAttackLeavesNothing(t *testing.T) {
	const attackers, most = 20, 256 << 10
	f := serve(t, &Server{Handler: hostileHandler()})
	for _, a := range attacks {
		clean := t.Run(a.name, func(t *testing.T) {
			wave(t, f, a, attackers)
			before := takenNow()
			wave(t, f, a, attackers)
			for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				after := takenNow()
				if after.heap-before.heap <= most && after.files <= before.files && buf.InUse() == 0 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%d attackers leave %d bytes, %d descriptors, %d blocks", attackers, after.heap-before.heap, after.files-before.files, buf.InUse())
				}
			}
		})
		if !clean {
			return // what one leaves would be found behind all others
		}
	}
	if p := f.state.pool.(*workers.Pool).Stats(); p.Running > 0 || f.state.lent.n.Load() > 0 {
		t.Errorf("handlers still run: %+v, %d lent", p, f.state.lent.n.Load())
	}
}

// wave has n clients attack at once, and returns when the last has gone, for the server too.
func wave(t *testing.T, f *fixture, a attack, n int) {
	t.Helper()
	stop := make(chan struct{})
	var attackers sync.WaitGroup
	for range n {
		attackers.Go(func() {
			nc, err := net.Dial("tcp", f.addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			nc.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) // for those of whom the server takes only a part
			a.do(nc.(*net.TCPConn), stop)
		})
	}
	h := beHealthy(t, f)
	h.more(50)
	close(stop)
	attackers.Wait()
	h.more(10)
	h.end()
	awaitConns(t, f, 0)
}
