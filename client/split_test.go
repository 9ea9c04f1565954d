package client

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// exchangeOf is what a client makes of a server's bytes that come in pieces of n, on the simulator.
func exchangeOf(wire []byte, n int) string {
	w := sim.New(1, sim.Calm())
	e, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	ln, err := w.ListenPeer("tcp", "127.0.0.1:80", func(p *sim.Peer) {
		rest := wire
		var next func()
		next = func() {
			if len(rest) == 0 {
				p.CloseWrite()
				return
			}
			k := min(n, len(rest))
			p.Write(rest[:k])
			rest = rest[k:]
			w.AfterFunc(1e6, next)
		}
		w.AfterFunc(1e6, next)
	})
	if err != nil {
		panic(err)
	}
	tr := &Transport{Engine: e}
	result := "nothing"
	r, _ := http.NewRequestWithContext(context.Background(), "GET", "http://"+ln.Addr().String()+"/", nil)
	tr.Do(r, func(r *http.Response, err error) {
		if err != nil {
			result = "error " + err.Error()
			return
		}
		result = fmt.Sprint(r.Status, r.Header, r.ContentLength, r.TransferEncoding, " ")
		OnBody(r, func(p []byte, err error) {
			if result += string(p); err != nil {
				result += fmt.Sprint(" ", err, r.Trailer)
			}
		})
	})
	w.Run()
	if err = e.Shutdown(context.Background()); err != nil {
		panic(err)
	}
	w.Run()
	return result
}
