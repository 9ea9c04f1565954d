package web

import (
	"net/http"
	"net/rpc"
	"testing"
)

// Sums is what TestRPC calls.
type Sums struct{}

func (Sums) Add(terms []int, sum *int) error {
	for _, n := range terms {
		*sum += n
	}
	return nil
}

// TestRPC serves package net/rpc, whose client asks for its connection with a head that has LFs
// alone.
func TestRPC(t *testing.T) {
	sameOnBoth(t, func(s *Server) {
		r := rpc.NewServer()
		if err := r.Register(Sums{}); err != nil {
			t.Fatal(err)
		}
		mux := http.NewServeMux()
		mux.Handle("/rpc", r)
		s.Handler = mux
	}, func(t *testing.T, f *fixture, r *record) {
		for _, path := range []string{"/rpc", "/nowhere", "/rpc"} {
			c, err := rpc.DialHTTPPath("tcp", f.addr, path)
			if err != nil {
				r.add("dial: %s", plain(err.Error()))
				continue
			}
			for n := range 3 {
				sum := 0
				r.add("%v", c.Call("Sums.Add", []int{n, 40}, &sum))
				r.add("%d, %v", sum, c.Call("Sums.Sub", []int{n}, &sum))
			}
			r.add("close: %v", c.Close())
		}
	})
}
