package web

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
)

// A handler that still waits for a worker when its client disconnects does not run, and Shutdown
// does not wait for it.
func TestNoHandlerForAClientThatHasGone(t *testing.T) {
	var ran atomic.Int32
	entered, goOn := make(chan struct{}), make(chan struct{})
	f := serve(t, &Server{Dispatch: DispatchPool, Workers: 1,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/gone" {
				ran.Add(1)
				return
			}
			close(entered)
			<-goOn
		})})
	first := dial(t, f)
	io.WriteString(first, "GET /first HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	<-entered
	for i := range 5 {
		c := dial(t, f)
		io.WriteString(c, "GET /gone HTTP/1.1\r\nHost: h\r\n\r\n")
		c.(*net.TCPConn).SetLinger(0)
		defer c.Close()
		within(t, "the request waits", func() bool { return poolOf(f.state).Stats().Queued > i })
		c.Close()
		within(t, "the connection has gone", func() bool { return f.Engine.Stats().Conns == 1 })
		for _, l := range f.Engine.Loops() { // and its handler knows
			told := make(chan struct{})
			l.Post(func() { close(told) })
			<-told
		}
	}
	close(goOn)
	io.Copy(io.Discard, first)
	within(t, "nothing is counted", func() bool { return f.state.conns.Load() == 0 })
	if n := ran.Load(); n != 0 {
		t.Errorf("%d handlers have run whose clients had disconnected", n)
	}
}

// An inline task does not begin either when its connection is lost before the end of the poll
// cycle in which it was asked for.
func TestNoInlineHandlerForAClientThatHasGone(t *testing.T) {
	x := &h1stream{exchange: exchange{given: newGiven(), inlined: true}}
	k := &link{from: &origin{base: context.Background()}, lane: &lane{s: &Server{
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler runs") })}}}
	x.carrier, x.lane, x.given.ctx.link = x, k.lane, k
	x.given.ctx.loseConn(false)
	if x.Do() || x.progress() != handling || x.given.ctx.Err() == nil {
		t.Error("the exchange does not end without its handler")
	}
}
