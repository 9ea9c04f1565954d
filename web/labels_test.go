package web

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime/pprof"
	"testing"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/leaktest"
)

// Labels that a handler has set are its own: the next handler on its goroutine, and goroutines that
// were started on its behalf, have none.
func TestLabelsEndWithTheirHandler(t *testing.T) {
	for _, d := range []Dispatch{DispatchInline, DispatchPool} {
		t.Run(d.String(), func(t *testing.T) {
			name := "own-" + t.Name()
			count, stop := leaktest.CountLabelled(name)
			defer stop()
			var f *fixture
			entered, goOn := make(chan struct{}), make(chan struct{})
			f = serveOn(t, &Server{Dispatch: d, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/set":
					pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(name, "yes")))
				case "/panic":
					pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(name, "yes")))
					panic(http.ErrAbortHandler)
				case "/wait":
					pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(name, "yes")))
					f.Engine.HandOff()
					close(entered)
					<-goOn
				}
				fmt.Fprintf(w, "%d at %s", count(), where(w))
			})}, myriad.Config{Loops: 1})
			at := map[Dispatch]string{DispatchInline: " at loop", DispatchPool: " at pool"}[d]
			a, b := ask(t, f), ask(t, f)
			mustSay := func(got, want string) {
				t.Helper()
				if got != want+at {
					t.Errorf("labelled goroutines: %s, want %s%s", got, want, at)
				}
			}
			mustSay(a.get("/set"), "1")
			mustSay(a.get("/look"), "0")
			raw(t, f, "GET /panic HTTP/1.1\r\nHost: h\r\n\r\n", false)
			mustSay(a.get("/look"), "0")
			io.WriteString(a.c, "GET /set HTTP/1.1\r\nHost: h\r\n\r\nGET /look HTTP/1.1\r\nHost: h\r\n\r\n")
			mustSay(a.answer(), "1")
			mustSay(a.answer(), "0")
			io.WriteString(a.c, "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
			<-entered
			mustSay(b.get("/look"), "1") // the one that waits
			close(goOn)
			a.answer()
			mustSay(b.get("/look"), "0")
		})
	}
}
