package mux

import (
	"testing"
)

// request opens a stream at a client.
func (r *rig) request(last bool) *testStream {
	r.t.Helper()
	s := r.openSoon(last)
	r.settle()
	return s
}

// openSoon has the loop open a stream.
func (r *rig) openSoon(last bool) *testStream {
	r.t.Helper()
	s := &testStream{r: r}
	s.in.Reset(r.conn.cfg.Window, true)
	s.Init(s)
	r.doOnLoop(func() {
		if err := r.conn.Open(&s.Stream); err != nil {
			r.t.Errorf("Open: %v", err)
		}
		head := pairs(":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/")
		if err := s.Put(head, nil, last); err != nil {
			r.t.Errorf("Put: %v", err)
		}
	})
	return s
}

// onLoop runs f on the loop.
func (r *rig) onLoop(f func()) {
	r.t.Helper()
	r.doOnLoop(f)
	r.settle()
}

// doOnLoop has f run on the loop.
func (r *rig) doOnLoop(f func()) {
	r.t.Helper()
	if err := r.conn.Conn.c.Loop().Do(f); err != nil {
		r.t.Fatal(err)
	}
}

func TestServerRules(t *testing.T)          { playSessions(t, "server_rules.txt") }
func TestClientRules(t *testing.T)          { playSessions(t, "client_rules.txt") }
func TestPrefaces(t *testing.T)             { playSessions(t, "prefaces.txt") }
func TestBodiesOfAWrongLength(t *testing.T) { playSessions(t, "lengths.txt") }
