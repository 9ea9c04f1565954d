package enginetest

import (
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// A late handler is at rest from a look on: the first look at its connection is 1.
type late struct {
	server *lateServer
	from   int // 0: never
	looks  int
}

func (h *late) Opened(*myriad.Conn)           {}
func (h *late) Received(*myriad.Conn, []byte) {}
func (h *late) Closed(*myriad.Conn, error)    {}
func (h *late) Thawer() myriad.Thawer         { return h.server }
func (h *late) Moved(*myriad.Conn)            {}

func (h *late) AtRest(*myriad.Conn) bool {
	h.looks++
	return h.from > 0 && h.looks >= h.from
}

func (h *late) Freeze(_ *myriad.Conn, dst []byte) ([]byte, error) { return dst, nil }

// A lateServer makes late handlers of the connections that come, in order.
type lateServer struct {
	from []int
	n    int
}

func (s *lateServer) Opened(c *myriad.Conn) {
	c.SetHandler(&late{server: s, from: s.from[s.n]}, nil)
	s.n++
}
func (s *lateServer) Received(*myriad.Conn, []byte) {}
func (s *lateServer) Closed(*myriad.Conn, error)    {}
func (s *lateServer) Formats() []string             { return []string{"late/1"} }

func (s *lateServer) Thaw(*myriad.Conn, string, []byte) (myriad.Handler, error) {
	return nil, myriad.ErrUnsupported
}

// When its wait is over, Freeze goes on while connections come to rest, for eight times that. It
// looks each millisecond.
func TestFreezeGoesOnWhileSomeComeToRest(t *testing.T) {
	many := func(n, step int) (from []int) {
		for i := range n {
			from = append(from, 1+i*step)
		}
		return from
	}
	for name, c := range map[string]struct {
		from  []int
		least int // connections that are left
		most  int
		took  time.Duration // at most
	}{
		"each look finds one":       {many(8, 1), 0, 0, 16 * time.Millisecond},
		"each second look":          {many(4, 2), 0, 0, 16 * time.Millisecond},
		"none does any more":        {[]int{1, 2, 0, 0}, 2, 2, 12 * time.Millisecond},
		"further ones come late":    {[]int{1, 30}, 1, 1, 12 * time.Millisecond},
		"they take very long":       {many(40, 1), 20, 39, 20 * time.Millisecond},
		"none comes to rest at all": {[]int{0}, 1, 1, 12 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			w := sim.New(1, sim.Lossless())
			s := &lateServer{from: c.from}
			e, err := myriad.Start(myriad.Config{Loops: 1, System: w})
			if err != nil {
				t.Fatal(err)
			}
			ln, err := e.Listen("tcp", "127.0.0.1:0", s)
			if err != nil {
				t.Fatal(err)
			}
			var peers []*sim.Peer
			for range c.from {
				peers = append(peers, w.Dial(ln.Addr()))
			}
			w.RunUntil(func() bool { return s.n == len(c.from) })
			var f *myriad.Frozen
			began, took := w.Now(), time.Duration(0)
			w.Go(func() {
				f, err = e.Freeze(2*time.Millisecond, s)
				took = w.Now().Sub(began)
			})
			w.RunUntil(func() bool { return f != nil || err != nil })
			if err != nil || f.Left() < c.least || f.Left() > c.most || took > c.took {
				t.Errorf("%d are left after %v, want %d to %d after %v at most (%v)", f.Left(), took, c.least, c.most,
					c.took, err)
			}
			w.Go(func() { f.GoOn() })
			for _, p := range peers {
				p.Close()
			}
			w.Go(func() { _ = e.Shutdown(t.Context()) })
			w.Run()
			w.Check(t)
		})
	}
}
