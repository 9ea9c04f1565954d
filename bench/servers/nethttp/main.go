// Command nethttp is the standard library's server.
package main

import (
	"io"
	"net"
	"net/http"

	"github.com/myriad-go/myriad/bench/servers/harness"
)

func main() {
	harness.Main(map[string]harness.Start{"http": func(addr string) (net.Addr, error) {
		mux := http.NewServeMux()
		mux.HandleFunc(harness.Path, plaintext)
		return harness.Listen(addr, (&http.Server{Handler: mux}).Serve)
	}})
}

func plaintext(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", harness.ContentType)
	_, _ = io.WriteString(w, harness.Answer)
}
