package websocket

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/web"
)

// autoPair dials twice and returns a function that sends on each connection, and what each
// receives.
func autoPair(t *testing.T, onMessage func(c *Conn, op Op, p []byte)) (e *myriad.Engine, say [2]func(string),
	hear [2]chan string) {
	e = startEngine(t, myriad.Config{Loops: 1})
	addr := listen(t, e, Handler(&Options{Dispatch: web.DispatchAuto, OnMessage: onMessage, Workers: startPool(t)}))
	clients := startEngine(t, myriad.Config{Loops: 1})
	for i := range say {
		hear[i] = make(chan string, 1024)
		c, _, err := Dial(context.Background(), "ws://"+addr, &DialOptions{Options: Options{
			Engine: clients, Dispatch: web.DispatchInline,
			OnMessage: func(_ *Conn, _ Op, p []byte) { hear[i] <- string(p) },
		}})
		must(t, err)
		say[i] = func(s string) {
			noError(t, c.Write(OpText, []byte(s)))
		}
	}
	return e, say, hear
}

func heard(t *testing.T, ch chan string) string {
	t.Helper()
	select {
	case s := <-ch:
		return s
	case <-time.After(hangs):
		t.Fatal("no answer")
	}
	return ""
}

// runsInline reports whether its caller runs as an inline task. It takes a few hundredths of the
// time in which a callback is quick, and the text of the stack a quarter under the race detector.
func runsInline() bool {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "(*Loop).runTask") {
			return true
		}
		if !more {
			return false
		}
	}
}

// Quick callbacks come to the loop, one that blocks there costs its neighbours a moment, and the
// order on each connection stays.
func TestAutoCallbacks(t *testing.T) {
	release := make(chan struct{})
	var onLoop atomic.Int64
	e, say, hear := autoPair(t, func(c *Conn, op Op, p []byte) {
		if runsInline() {
			onLoop.Add(1)
		}
		if string(p) == "block" {
			<-release
		}
		_ = c.Write(op, p)
	})
	// The last callback on the loop may have been slow as well, on a busy machine, and what comes
	// next is then for the pool.
	for tries := 0; e.Stats().Overstays == 0; tries++ {
		if tries == 50 {
			t.Fatal("no takeover was counted")
		}
		for n, before := 0, onLoop.Load(); onLoop.Load() < before+100; n++ {
			if n > 50_000 {
				t.Fatal("never on the loop")
			}
			say[0]("learn")
			heard(t, hear[0])
		}
		blockOnce(t, say, hear, release)
	}
}

// blockOnce has a callback of the first connection block until the second has been answered a
// hundred times.
func blockOnce(t *testing.T, say [2]func(string), hear [2]chan string, release chan<- struct{}) {
	t.Helper()
	say[0]("block")
	for i := range 50 {
		say[0](fmt.Sprint(i))
	}
	for i := range 100 {
		say[1](fmt.Sprint(i))
		if got := heard(t, hear[1]); got != fmt.Sprint(i) {
			t.Fatalf("neighbour: %q, want %d", got, i)
		}
	}
	release <- struct{}{}
	if got := heard(t, hear[0]); got != "block" {
		t.Fatalf("got %q", got)
	}
	for i := range 50 {
		if got := heard(t, hear[0]); got != fmt.Sprint(i) {
			t.Fatalf("after the block: %q, want %d", got, i)
		}
	}
}
