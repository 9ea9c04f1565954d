package websocket

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// A connection leaves all of its groups when it ends, by each kind of end, before OnClose is called
// and although nothing is sent. It joins none after that.
func TestConnectionsLeaveTheirGroups(t *testing.T) {
	const n = 500
	for name, end := range map[string]func(c *Conn, p *client){
		"close frame": func(_ *Conn, p *client) { p.send(OpClose, closeWith(1000, "")) },
		"FIN":         func(_ *Conn, p *client) { p.CloseWrite() },
		"Abort":       func(c *Conn, _ *client) { c.Abort(nil) },
		"reset":       func(_ *Conn, p *client) { p.Reset() },
	} {
		var groups [3]Group
		lengths := func() (n [3]int) {
			for i := range groups {
				n[i] = groups[i].Len()
			}
			return n
		}
		var conns []*Conn
		members := map[*Conn][]*Member{}
		closed := 0
		join := func(c *Conn) {
			for i := range groups {
				m, err := groups[i].Join(c)
				noError(t, err)
				members[c] = append(members[c], m)
			}
		}
		o := &Options{PingInterval: quiet, OnOpen: func(c *Conn) { conns = append(conns, c); join(c) },
			OnClose: func(c *Conn, _ error) {
				closed++
				if join(c); groups[0].Len() != n-closed {
					t.Errorf("%s: %d members in OnClose number %d", name, groups[0].Len(), closed)
				}
				for _, m := range members[c] {
					m.Leave()
				}
			}}
		w := newWorld(t, 3, sim.Lossless(), myriad.Config{}, Handler(o))
		var clients []*client
		for range n {
			clients = append(clients, w.client(sampleRequest))
			w.Run()
		}
		if got := lengths(); got != [3]int{n, n, n} {
			t.Fatalf("%s: %d members", name, got)
		}
		for i, c := range conns {
			if i%2 == 0 {
				members[c][i%3].Leave() // of any of its groups, before it ends
			}
			end(c, clients[i])
			w.Run()
		}
		if got := lengths(); closed != n || got != [3]int{} {
			t.Errorf("%s: %d of %d connections have closed; %d members are left", name, closed, n, got)
		}
		if r := rosterOf(w.e.Loops()[0]); r.first != nil {
			t.Errorf("%s: %d connections are noted", name, len(r.first))
		}
		w.stop()
	}
}

// Joins and leaves race with the ends of their connections: no connection stays.
func TestJoinBesideTheEnd(t *testing.T) {
	const n = 200
	e := startEngine(t, myriad.Config{Loops: 2})
	var groups [2]Group
	var joins, closes sync.WaitGroup
	closes.Add(n)
	var opened atomic.Int32
	o := &Options{Workers: startPool(t), PingInterval: quiet, OnOpen: func(c *Conn) {
		opened.Add(1)
		for i := range groups {
			joins.Go(func() {
				m, err := groups[i].Join(c)
				noError(t, err)
				if i == 1 {
					m.Leave()
				}
			})
		}
	}, OnClose: func(*Conn, error) { closes.Done() }}
	addr := listen(t, e, Handler(o))
	for range n {
		_ = dialRaw(t, addr).open().Close()
	}
	closes.Wait()
	joins.Wait()
	if a, b := groups[0].Len(), groups[1].Len(); opened.Load() != n || a != 0 || b != 0 {
		t.Errorf("%d of %d connections were open; %d and %d members are left", opened.Load(), n, a, b)
	}
}
