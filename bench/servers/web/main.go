// Command web is package web with the handler that command nethttp has.
package main

import (
	"flag"
	"io"
	"net"
	"net/http"

	"github.com/myriad-go/myriad/bench/servers/harness"
	"github.com/myriad-go/myriad/web"
)

func main() {
	inline := flag.Bool("inline", false, "run the handler on the loop")
	harness.Main(map[string]harness.Start{"http": func(addr string) (net.Addr, error) {
		mux := http.NewServeMux()
		mux.HandleFunc(harness.Path, plaintext)
		server := &web.Server{Handler: mux}
		if *inline {
			server.Dispatch = web.DispatchInline
		}
		ln, err := server.Listen("tcp", addr)
		if err != nil {
			return nil, err
		}
		return ln.Addr(), nil
	}})
}

func plaintext(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", harness.ContentType)
	_, _ = io.WriteString(w, harness.Answer)
}
