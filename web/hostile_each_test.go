package web

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Each attack by itself, with nothing but the defaults: healthy clients are answered meanwhile, and
// twenty attackers leave less than 13 kB each, no descriptor, no block and no handler. A second
// wave is held against the first, which may leave tables and pools larger.
func TestEachAttackLeavesNothing(t *testing.T) {
	const most = 256 << 10
	each := attackers(20)
	f := serve(t, &Server{Handler: hostileHandler()})
	for _, a := range attacks {
		clean := t.Run(a.name, func(t *testing.T) {
			wave(t, f, a, each)
			before := takenNow()
			wave(t, f, a, each)
			awaitTaken(t, before, most)
		})
		if !clean {
			return // what one leaves would be found behind all others
		}
	}
	awaitHandlers(t, f)
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
			// for clients of which the server takes only a part
			nc.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
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
