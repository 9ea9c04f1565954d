package client

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"github.com/myriad-go/myriad"
	"github.com/myriad-go/myriad/internal/driver/sim"
)

// exchangeOf is what a client makes of a server, on the simulator, whose bytes come in pieces.
func exchangeOf(pieces ...[]byte) (o outcome) {
	w := sim.New(1, sim.Calm())
	e, err := myriad.Start(myriad.Config{Loops: 1, System: w, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	ln, err := w.ListenPeer("tcp", "127.0.0.1:80", func(p *sim.Peer) {
		rest := pieces
		var next func()
		next = func() {
			if len(rest) == 0 {
				p.CloseWrite()
				return
			}
			p.Write(rest[0])
			rest = rest[1:]
			w.AfterFunc(1e6, next)
		}
		w.AfterFunc(1e6, next)
	})
	if err != nil {
		panic(err)
	}
	tr := &Transport{Engine: e}
	r, _ := http.NewRequestWithContext(context.Background(), "GET", "http://"+ln.Addr().String()+"/", nil)
	tr.Do(r, func(r *http.Response, err error) {
		if err != nil {
			o.err = err.Error()
			return
		}
		o.head = fmt.Sprint(r.Status, r.Header, r.ContentLength, r.TransferEncoding)
		o.status = r.StatusCode
		OnBody(r, func(p []byte, err error) {
			if o.body += string(p); err != nil {
				o.end = fmt.Sprint(err, r.Trailer)
				o.complete = err == io.EOF
			}
		})
	})
	w.Run()
	if err = e.Shutdown(context.Background()); err != nil {
		panic(err)
	}
	w.Run()
	return o
}

// An outcome is all that a caller sees of a response.
type outcome struct {
	err      string
	head     string
	status   int
	body     string
	end      string
	complete bool
}

// inPieces cuts bytes into pieces of n.
func inPieces(p []byte, n int) (pieces [][]byte) {
	for len(p) > 0 {
		k := min(n, len(p))
		pieces = append(pieces, p[:k])
		p = p[k:]
	}
	return pieces
}
