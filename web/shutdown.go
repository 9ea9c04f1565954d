package web

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/myriad-go/myriad/internal/driver"
)

// newConnGrace is how long Shutdown lets a connection live on which no request has begun: one may
// be on its way.
const newConnGrace = 5 * time.Second

// Shutdown stops listening, closes idle connections, and lets every request that has begun be
// answered. It returns when all connections have closed, all handlers have returned, and every
// Serve is about to return; then with the first error of closing the listeners. If ctx ends before,
// it returns ctx's error. Detached responses are closed; upgraded and hijacked connections, with
// the handlers that have hijacked them, are not its business (RegisterOnShutdown). A second call
// waits like the first.
func (s *Server) Shutdown(ctx context.Context) error {
	st, failed := s.stopListening()
	s.runOnShutdown(st)
	if st == nil {
		return failed
	}
	st.shaking.end(st.engine.System().Now().Add(newConnGrace))
	// The second time, because the loop that accepted may have handed connections to others until
	// it came to this in the first.
	for range 2 {
		st.drain()
		if err := st.waitQuiet(ctx); err != nil {
			return err
		}
	}
	st.tasks.Close() // handlers that have hijacked their connection may still run
	return failed
}

// drain has all lanes end in order. Each counts as a connection until its loop has come to that,
// and so to those that waited to be opened.
func (st *state) drain() {
	for _, ln := range st.lanes {
		st.conns.Add(1)
		if !ln.loop.Post(func() { ln.drain(); st.connGone() }) {
			st.connGone()
		}
	}
}

// Close stops listening and resets all connections but those upgraded or hijacked. Neither Serve
// nor handlers that run are waited for; their requests' contexts are cancelled. The error is what
// failed first when the listeners were closed.
func (s *Server) Close() error {
	st, failed := s.stopListening()
	if st == nil {
		return failed
	}
	for _, ln := range st.lanes {
		ln.loop.Post(func() { ln.abort(); st.given.end(time.Unix(1, 0)) })
	}
	st.shaking.cut()
	st.tasks.Close()
	return failed
}

// stopListening ends every Serve. failed is what went wrong first with closing what they listen on.
func (s *Server) stopListening() (st *state, failed error) {
	s.closing.Store(true)
	s.once.Do(func() { s.initErr = http.ErrServerClosed })
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listeners {
		if err := l.stop(); failed == nil {
			failed = err
		}
		close(l.done)
		delete(s.listeners, l)
	}
	return s.state, failed
}

// runOnShutdown calls what RegisterOnShutdown was given. st is nil for a server that has never
// served.
func (s *Server) runOnShutdown(st *state) {
	start := driver.Process{}.Go
	if st != nil {
		start = st.engine.System().Go
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.onShutdown {
		start(f)
	}
}

// waitQuiet returns when the last connection has gone, the last handler without one, the last that
// has kept a loop's goroutine, and the last Serve.
func (st *state) waitQuiet(ctx context.Context) error {
	p := st.engine.System().NewParker()
	st.mu.Lock()
	st.waiters = append(st.waiters, p)
	st.mu.Unlock()
	defer st.forget(p)
	stop := context.AfterFunc(ctx, p.Unpark)
	defer stop()
	for st.conns.Load() > 0 || st.tasks.Away() != 0 || st.serving.Load() > 0 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.Park()
	}
	return nil
}

// connGone wakes each Shutdown that waits for the last connection.
func (st *state) connGone() {
	if st.conns.Add(-1) == 0 {
		st.wakeWaiters()
	}
}

// serveOver wakes them for the last Serve.
func (st *state) serveOver() {
	if st.serving.Add(-1) == 0 {
		st.wakeWaiters()
	}
}

func (st *state) forget(waiter driver.Parker) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.waiters = slices.DeleteFunc(st.waiters, func(p driver.Parker) bool { return p == waiter })
}

func (st *state) wakeWaiters() {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, p := range st.waiters {
		p.Unpark()
	}
}
