package websocket

import (
	"context"
	"fmt"
	"runtime/pprof"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/leaktest"
	"github.com/myriad-go/myriad/web"
	"github.com/myriad-go/myriad/workers"
)

// Labels of runtime/pprof that a callback has set are gone when the next one runs on its goroutine.
func TestLabelsEndWithTheirCallback(t *testing.T) {
	for _, d := range []web.Dispatch{web.DispatchInline, web.DispatchPool} {
		t.Run(d.String(), func(t *testing.T) {
			name := "own-" + t.Name()
			count, stop := leaktest.CountLabelled(name)
			defer stop()
			pool := workers.New(workers.Config{Workers: 1})
			defer pool.Close(context.Background())
			addr := listen(t, startEngine(t, myriad.Config{Loops: 1}),
				Handler(&Options{Dispatch: d, Workers: pool, OnMessage: func(c *Conn, _ Op, p []byte) {
					if string(p) == "set" {
						pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(name, "yes")))
					}
					c.Write(OpText, fmt.Append(nil, count()))
				}}))
			client := startEngine(t, myriad.Config{Loops: 1})
			said := make(chan string, 1)
			for range 2 {
				c, _, err := Dial(context.Background(), "ws://"+addr, &DialOptions{Options: Options{
					Engine: client, Dispatch: web.DispatchInline, OnMessage: func(_ *Conn, _ Op, p []byte) {
						said <- string(p)
					},
				}})
				must(t, err)
				for i, text := range []string{"look", "set", "look", "set"} {
					c.Write(OpText, []byte(text))
					if got, want := heard(t, said), fmt.Sprint(i%2); got != want {
						t.Errorf("message %d: %s labelled goroutines, want %s", i, got, want)
					}
				}
			}
		})
	}
}
