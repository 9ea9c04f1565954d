package main

import (
	"net/http"
	"sync/atomic"
)

// A switchable is a handler that can be replaced while the server serves. A request keeps the
// handler with which it began.
type switchable struct{ current atomic.Pointer[http.Handler] }

func (s *switchable) use(h http.Handler) { s.current.Store(&h) }

func (s *switchable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*s.current.Load()).ServeHTTP(w, r)
}
