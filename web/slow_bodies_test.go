package web

import (
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad/internal/soak"
	"github.com/myriad-go/myriad/workers"
)

// When clients that send a body a byte at a time have left, by FIN or reset, every handler that
// reads one ends with an error. Nothing remains but the pool's idle goroutines, which end after
// workers.DefaultIdle, or up to half as long again.
func TestSlowBodiesLeaveNothing(t *testing.T) {
	t.Parallel()
	const slow = 200
	var within atomic.Int64
	ended := make(chan error, slow)
	f := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		within.Add(1)
		_, err := io.Copy(io.Discard, r.Body)
		ended <- err
	})})
	var held []net.Conn
	for i := range slow {
		c := dial(t, f)
		head := post + "Content-Length: 1000\r\n\r\n"
		if i%2 == 0 {
			head = chunked + "3e8\r\n"
		}
		io.WriteString(c, head)
		io.WriteString(c, "x")
		held = append(held, c)
	}
	await := func(what string, long time.Duration, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(long); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("after %v: %s", long, what)
			}
		}
	}
	await("not all handlers have begun", hangs, func() bool { return within.Load() == slow })
	for i, c := range held {
		if i%4 < 2 {
			c.(*net.TCPConn).SetLinger(0) // a reset
		}
		c.Close()
	}
	left := time.Now()
	for range slow {
		select {
		case err := <-ended:
			if err == nil {
				t.Error("a body that was cut off has ended in order")
			}
		case <-time.After(hangs):
			t.Fatal("handlers go on reading")
		}
	}
	st := f.state
	pool := poolOf(st)
	await("something is still there", hangs, func() bool {
		s := pool.Stats()
		return st.Conns.Load() == 0 && st.Load.Handlers() == 0 && s.Running == 0 && s.Stuck == 0 && s.Workers == s.Idle
	})
	t.Logf("after %v %d goroutines wait for work", time.Since(left).Round(time.Millisecond), pool.Stats().Idle)
	if !soak.On(t) {
		return // the pool's own tests end idle goroutines in less time
	}
	await("goroutines without work have not ended", workers.DefaultIdle*3/2+hangs,
		func() bool { return pool.Stats().Workers == 0 })
	t.Logf("after %v none", time.Since(left).Round(time.Millisecond))
}
